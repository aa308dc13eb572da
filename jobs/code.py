"""The copy of a job's code that travels with a run: what .gitignore and .launchignore leave."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from jobs.errors import LaunchError, NotFound
from jobs.spec import GitState

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".launchignore")  # the later one overrides the earlier
# Never sent, whatever the ignore files say: repositories, caches, and the local secrets.
NEVER_SENT = frozenset({".git", ".hg", ".svn", "__pycache__", ".secrets.env"})
# In a folder that `launch` has brought what a run made to; that is no code of the next one.
FETCHED = ".trainyard-fetched.json"
_MADE = frozenset({"outputs", "logs", "metrics.jsonl", "summary.json", "error.json"})
MAX_DIFF_CHARACTERS = 1 << 20
GIT_TIMEOUT_S = 10
_MOST_NAMES = 100


class Snapshot(Struct, frozen=True, kw_only=True):
    """What was copied, and what was left out: links to folders outside, folders of what was fetched."""

    files: int
    bytes: int
    left_out: tuple[str, ...]


def snapshot(
    source: Path, target: Path, *, only: Sequence[str] = (), exclude: Sequence[Path] = ()
) -> Snapshot:
    """Copy the code in `source` to the new folder `target`.

    `only` names the files or folders of it that travel (all when empty), `exclude` folders that
    never do, such as the workspace that holds `target`. Links to files and folders inside stay
    links; a link to a file outside becomes that file; other links are left out. Ignored folders
    are not even listed.
    """
    if not source.is_dir():
        message = f"`code: {source}` is no folder"
        raise NotFound(message, hint="paths in a job file are relative to the file")
    target.mkdir()
    files = 0
    size = 0
    left_out: list[str] = []
    for entry in travelling(source, only, {str(each.resolve()) for each in exclude}):
        copy = target / entry.name
        if entry.kind == "folder":
            copy.mkdir(parents=True, exist_ok=True)
        elif entry.kind == "left out":
            left_out.append(entry.name)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            files += 1
            size += _copy(source / entry.name, copy, as_link=entry.kind == "link")
    return Snapshot(files=files, bytes=size, left_out=tuple(left_out))


def git_state(folder: Path, copy: Path, only: Sequence[str] = ()) -> GitState | None:
    """The commit that the folder is at, and what of it was changed since; None outside of git.

    Told is what changed in files that are in `copy`, the folder that travels, and of deleted ones
    the name: nothing that stays here. `only` names the parts that travel (all when empty).
    """
    try:
        commit = _git(folder, "rev-parse", "HEAD").decode().strip()
        diff = _dirty_diff(folder, copy, only)
    except (OSError, subprocess.SubprocessError):
        return None
    return GitState(commit=commit, dirty_diff=diff[:MAX_DIFF_CHARACTERS] or None)


def _dirty_diff(folder: Path, copy: Path, only: Sequence[str]) -> str:
    listed = _diff(folder, only or ["."], "--name-status", "-z", "--relative")
    words = os.fsdecode(listed).split("\0")
    changes = list(zip(words[::2], words[1::2], strict=False))  # after the last one is a "\0"
    kept = [name for how, name in changes if how != "D" and os.path.lexists(copy / name)]
    deleted = [
        name for how, name in changes if how == "D" and NEVER_SENT.isdisjoint(name.split("/"))
    ]
    # A name stands for all that lies below it, too: git itself holds the two kinds apart.
    parts = [_diff(folder, names, "--diff-filter=d") for names in _few_at_once(kept)]
    parts += [
        _diff(folder, names, "--diff-filter=D", "--irreversible-delete")
        for names in _few_at_once(deleted)
    ]
    return b"".join(parts).decode(errors="replace")


def _few_at_once(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """So many as the arguments of a process may be."""
    for start in range(0, len(names), _MOST_NAMES):
        yield names[start : start + _MOST_NAMES]


def _diff(folder: Path, names: Sequence[str], *options: str) -> bytes:
    same = ("--no-color", "--no-ext-diff", "--no-renames", "--submodule=short")
    return _git(folder, "--literal-pathspecs", "diff", "HEAD", *same, *options, "--", *names)


def _git(folder: Path, *arguments: str) -> bytes:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        timeout=GIT_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    ).stdout


# --- What travels ------------------------------------------------------------------------------


Kind = Literal["folder", "file", "link", "left out"]


class Entry(NamedTuple):
    """Something below the source; a `link` leads to something inside, a `file` may be a link, too."""

    name: str
    kind: Kind


class _Rules:
    """The ignore files met on the way down to a folder, outermost first."""

    def __init__(self, parts: tuple[tuple[str, GitIgnoreSpec], ...] = ()) -> None:
        self._parts = parts

    def with_folder(self, folder: Path, prefix: str) -> _Rules:
        """The rules inside a folder; `prefix` is its path below the source, ending in `/`."""
        lines: list[str] = []
        for name in IGNORE_FILES:
            try:
                lines += (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
        if not lines:
            return self
        # Loaded for the jobs that have ignore files only.
        from pathspec import GitIgnoreSpec

        return _Rules((*self._parts, (prefix, GitIgnoreSpec.from_lines(lines))))

    def ignore(self, path: str) -> bool:
        """Whether a path is ignored (folders end in `/`): the innermost file with a say decides."""
        for prefix, spec in reversed(self._parts):
            # Rules from above the source have the way down to it as a negative prefix.
            inner = prefix[1:] + path if prefix.startswith("^") else path.removeprefix(prefix)
            verdict = spec.check_file(inner).include
            if verdict is not None:
                return verdict
        return False


def travelling(source: Path, only: Sequence[str], exclude: set[str]) -> Iterator[Entry]:
    """All that travels, folders before what is in them; see `snapshot`.

    `exclude` are whole paths. Raises NotFound for a part that is not there.
    """
    root = source.resolve()
    rules = _rules_above(root)
    for name in only or ("",):
        path = root / name
        if not path.exists():
            message = f"there is no `{name}` in `{source}`"
            raise NotFound(message, hint="look at `code` in the job file")
        if path.is_dir():
            yield from _walk(root, f"{name.rstrip('/')}/" if name else "", rules, exclude)
        else:
            yield Entry(name, "file")


def _rules_above(root: Path) -> _Rules:
    """The rules of a repository that the source is a folder of."""
    above = [root, *root.parents]
    top = next((at for at, folder in enumerate(above) if (folder / ".git").exists()), 0)
    rules = _Rules()
    for folder in reversed(above[1 : top + 1]):
        way = root.relative_to(folder).as_posix() + "/"
        rules = rules.with_folder(folder, "^" + way)
    # A folder that is ignored itself was named on purpose, as when a run's copy is run again.
    return _Rules() if rules.ignore("") else rules


def _walk(root: Path, start: str, rules: _Rules, exclude: set[str]) -> Iterator[Entry]:
    waiting = [(start, _rules_on_the_way(root, start, rules))]
    while waiting:
        prefix, outer = waiting.pop()
        inside = outer.with_folder(root / prefix, prefix)
        items, fetched = _parted(prefix, _listed(root / prefix, exclude))
        yield from (Entry(name, "left out") for name in fetched)
        if prefix in fetched:
            continue
        if prefix:
            yield Entry(prefix, "folder")
        for item in items:
            name = prefix + item.name
            if item.is_symlink():
                if not inside.ignore(name) and not inside.ignore(f"{name}/"):
                    yield Entry(name, _kind_of_link(root, Path(item.path)))
            elif item.is_dir(follow_symlinks=False):
                if not inside.ignore(f"{name}/"):
                    waiting.append((f"{name}/", inside))
            elif item.is_file(follow_symlinks=False) and not inside.ignore(name):
                yield Entry(name, "file")


def _parted(prefix: str, items: list[os.DirEntry[str]]) -> tuple[list[os.DirEntry[str]], list[str]]:
    """What of a folder is code, and the names of the folders that were fetched: it may be itself."""
    if all(item.name != FETCHED for item in items):
        return items, []
    own = [item for item in items if not _is_made(item.name)]
    if prefix and not own:
        return own, [prefix]
    return own, [
        f"{prefix}{item.name}/"
        for item in items
        if _is_made(item.name) and item.is_dir(follow_symlinks=False)
    ]


def _is_made(name: str) -> bool:
    """Whether a fetch left it, where one did: results, half of a file, what it keeps for itself."""
    return name in _MADE or name.endswith(".part") or name.startswith(".trainyard-fetch")


def _rules_on_the_way(root: Path, start: str, rules: _Rules) -> _Rules:
    way = ""
    for part in start.split("/")[:-1]:
        rules = rules.with_folder(root / way, way)
        way += f"{part}/"
    return rules


def _listed(folder: Path, exclude: set[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except PermissionError as error:
        message = f"cannot read `{folder}`, which belongs to the job's code"
        raise LaunchError(message, hint="name it in .launchignore") from error
    return [each for each in found if each.name not in NEVER_SENT and each.path not in exclude]


def _kind_of_link(root: Path, link: Path) -> Kind:
    try:
        aim = link.resolve(strict=True)
    except (OSError, RuntimeError):  # leads nowhere, or round in a circle
        return "left out"
    if aim.is_relative_to(root):
        return "link" if not link.readlink().is_absolute() else _kind_of_content(aim)
    return _kind_of_content(aim)


def _kind_of_content(aim: Path) -> Kind:
    return "file" if aim.is_file() else "left out"


def _copy(source: Path, target: Path, *, as_link: bool) -> int:
    if as_link:
        target.symlink_to(source.readlink())
        return 0
    with source.open("rb") as read:
        status = os.fstat(read.fileno())
        mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o600
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as write:  # noqa: PTH123 (a descriptor)
            while chunk := read.read(1 << 20):
                write.write(chunk)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    return status.st_size
