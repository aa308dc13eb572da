"""Asks git about a repository that somebody else may have made, and starts no program of it.

A repository's own configuration names programs (core.fsmonitor, hooks, filters, diff drivers, the
transports of a partial clone) and folders elsewhere. None is needed to read a commit and a diff.
"""

from __future__ import annotations

import os
import subprocess
from functools import cached_property
from pathlib import Path

TIMEOUT_S = 10
_SETTINGS = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}")
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "",  # no transport at all: an object that is missing stays missing
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
# The user's own say; other GIT_ variables would lead to another repository.
_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES")
# In a submodule git would ask its configuration, too, which no setting of ours reaches.
_PARTS = ("objects", "refs")
_NO_SUBMODULES = "--ignore-submodules=dirty"


class GitFailure(Exception):
    """Git is not there, took too long, or has no answer that could be trusted."""


class Repository:
    """The repository that a folder is in. Methods start git, and raise GitFailure."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def commit(self) -> str:
        """Give the commit that is checked out."""
        return self._ask("rev-parse", "HEAD").strip()

    def origin(self) -> str:
        """Give the address that the repository was cloned from."""
        return self._ask("config", "--get", "remote.origin.url").strip()

    def require_own(self) -> None:
        """Raise GitFailure where the repository leads to files or to a history elsewhere."""
        asked = [word for part in _PARTS for word in ("--git-path", part)]
        places = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir", *asked)
        top, history, shared, *parts = self._paths(*places)
        if not self._folder.resolve().is_relative_to(top):
            message = f"its files are in `{top}`"
            raise GitFailure(message)
        if not history.is_relative_to(top) and not self._is_claimed_by(history, top):
            message = f"its history is in `{history}`"
            raise GitFailure(message)
        # A worktree's own part of the history lies below the one that it shares.
        for part in (history, *parts):
            if not part.is_relative_to(shared):
                message = f"its history is in `{shared}` and `{part}`"
                raise GitFailure(message)
        if (shared / "objects/info/alternates").exists():
            message = "its history is borrowed from another repository"
            raise GitFailure(message)

    def diff(self, names: list[str], *options: str) -> bytes:
        """Give `git diff HEAD` of the names, each taken literally."""
        same = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--submodule=short")
        words = ("diff", "HEAD", *same, _NO_SUBMODULES, *options, "--", *names)
        return self._run(*self._without_filters, "--literal-pathspecs", *words)

    def is_changed(self, names: list[str]) -> bool:
        """Say whether any of the names differs from the commit."""
        words = ("status", "--porcelain", _NO_SUBMODULES, "--", *names)
        return bool(self._run(*self._without_filters, *words))

    @cached_property
    def _without_filters(self) -> tuple[str, ...]:
        """The options that switch off all filters.

        The user's own, too: git-lfs starts what a repository names as its extensions.
        """
        names = self._ask("config", "--list", "-z", "--name-only").split("\0")
        found = {name.rpartition(".")[0]: None for name in names if name.startswith("filter.")}
        if any("=" in name or "\n" in name for name in found):
            message = "its filters have names that cannot be switched off"
            raise GitFailure(message)
        off = [f"{name}.{key}" for name in found for key in ("clean=", "process=", "required=no")]
        return tuple(word for setting in off for word in ("-c", setting))

    def _is_claimed_by(self, history: Path, top: Path) -> bool:
        """Tell whether a history names the files in `top` its own (worktree, submodule)."""
        try:
            told = (history / "gitdir").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            # Git went by it to find `top`.
            return bool(self._ask("config", "--default", "", "--get", "core.worktree").strip())
        return Path(told).parent.resolve() == top

    def _paths(self, *words: str) -> list[Path]:
        """Ask for several folders at once, one a line; a name with a line's end in it fits none."""
        told = self._ask("rev-parse", *words).removesuffix("\n").split("\n")
        if len(told) != 3 + len(_PARTS):
            message = "its folders have line breaks in their names"
            raise GitFailure(message)
        return [(self._folder / each).resolve() for each in told]

    def _ask(self, *words: str) -> str:
        return os.fsdecode(self._run(*words))

    def _run(self, *words: str) -> bytes:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or not name.startswith("GIT_")
        }
        quiet = ("--no-pager", "--no-optional-locks")
        try:
            return subprocess.run(
                ["git", *quiet, *settings, "-C", str(self._folder), *words],
                check=True,
                capture_output=True,
                timeout=TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                env={**kept, **_ENVIRONMENT},
            ).stdout
        except subprocess.TimeoutExpired as error:
            message = f"git took longer than {TIMEOUT_S} s"
            raise GitFailure(message) from error
        except subprocess.CalledProcessError as error:
            raise GitFailure(os.fsdecode(error.stderr).strip()) from error
        except OSError as error:
            raise GitFailure(str(error)) from error
