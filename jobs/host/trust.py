"""Judges whose a project's folder is, and whether programs that lie in it may be started.

The rule is git's (safe.directory): a project is taken where it belongs to us or to root and others
cannot write to it, or where its user named it. But what a repository brings belongs to whoever
clones it. So programs of a project are started only where `launch` was installed from that very
clone, or where its user named it: by `launch env trust`, or by `make setup` in it.

Standard library only: set-up calls it before any environment exists.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, cast

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.files import write_file
from jobs.host.private import locked, make_folder

# The clone that this package was installed from.
INSTALLED = Path(__file__).resolve().parents[2]
PROJECT_FILE = "Pulumi.yaml"
_LIST = "trusted.json"


def why_foreign(*paths: Path) -> str | None:
    """Say which path belongs to another user or can be written by others; None where none does.

    Raises OSError for a path that is not there.
    """
    if os.name != "posix":
        return None
    for path in paths:
        # A link is its maker's; what it leads to may be another's.
        for status in (path.lstat(), path.stat()):
            if status.st_uid not in _our_uids():
                return f"{path} belongs to {_user(status.st_uid)}"
            if _is_open_to_others(status):
                return f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def owner_of(path: Path) -> str:
    """Name the user whose a path is, with the uid."""
    return _user(path.stat().st_uid)


def is_trusted(project: Path) -> bool:
    """Whether programs of this project may be started."""
    if project == INSTALLED:
        return True
    listed = _read_list().get(str(project))
    return listed is not None and listed == _owners(project)


def trust(project: Path) -> Path:
    """List a project as trusted for as long as its owners stay the same; gives the list's file.

    Projects that are gone or have changed hands leave the list. Raises EnvironmentFailure.
    """
    import json

    file = _list_file()
    try:
        make_folder(file.parent)
        with locked(file.with_suffix(".lock")):
            listed = _read_list() | {str(project): _owners(project)}
            kept = {
                each: uids for each, uids in listed.items() if uids and uids == _owners(Path(each))
            }
            write_file(file, json.dumps(kept, indent=1).encode(), mode=0o600)
    except OSError as error:
        message = f"the list of trusted projects, {file}, cannot be written: {error.strerror}"
        raise EnvironmentFailure(message, hint="XDG_CACHE_HOME names another folder") from error
    if _owners(project) is not None and not is_trusted(
        project
    ):  # as on a disk without owners and modes
        message = f"{file} is not believed: {why_foreign(file) or 'it was changed meanwhile'}"
        raise EnvironmentFailure(message, hint="XDG_CACHE_HOME names another folder")
    return file


def _list_file() -> Path:
    from jobs.host.cache import cache_root

    return cache_root(os.environ) / _LIST


def _read_list() -> dict[str, Any]:
    """Projects and the uids whose they were; none where the list is missing, damaged or not ours."""
    import json

    file = _list_file()
    try:
        if why_foreign(file):
            return {}
        listed: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", listed) if isinstance(listed, dict) else {}


def _owners(project: Path) -> list[int] | None:
    try:
        return [each.stat().st_uid for each in (project, project / PROJECT_FILE)]
    except OSError:
        return None


def _our_uids() -> set[int]:
    """Ours and root's; under sudo also those of who typed it, as git has it."""
    uids = {os.geteuid(), 0}
    caller = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isascii() and caller.isdecimal():
        uids.add(int(caller))
    return uids


def _is_open_to_others(status: os.stat_result) -> bool:
    if stat.S_ISLNK(status.st_mode):
        return False
    by_group = status.st_mode & stat.S_IWGRP and not _is_private_group(status)
    return bool(status.st_mode & stat.S_IWOTH or by_group)


def _is_private_group(status: os.stat_result) -> bool:
    """Whether the group is root's, or the owner's alone, as where each user has one (umask 002)."""
    import grp
    import pwd

    if status.st_gid == 0:
        return True
    try:
        group, owner = grp.getgrgid(status.st_gid), pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return False
    return group.gr_name == owner and set(group.gr_mem) <= {owner}


def _user(uid: int) -> str:
    try:
        import pwd

        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except (ImportError, KeyError):
        return f"uid {uid}"
