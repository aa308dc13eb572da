"""Copy the code of a run: a folder's files, except those that .gitignore and .launchignore name."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from jobs.contracts.errors import LaunchError, NotFound
from jobs.rank.folder import RESULTS, copy_content

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".launchignore")  # the later one overrides the earlier
# Never sent, whatever the ignore files say: repositories, caches, and the local secrets.
NEVER_SENT = frozenset({".git", ".hg", ".svn", "__pycache__", ".secrets.env"})
# In a folder that `launch` has brought what a run made to; that is no code of the next one.
FETCHED = ".trainyard-fetched.json"
_MADE = frozenset({"outputs", "logs", "metrics.jsonl", "summary.json", "error.json"})


class Snapshot(Struct, frozen=True, kw_only=True):
    """Counts of the files that travel, and the names of those that stay here.

    `left_out` are links to what does not travel, folders (they end in a slash) of what was fetched
    from runs, and the code's own `outputs`, whose place on a node is taken.
    """

    num_files: int
    bytes: int
    left_out: tuple[str, ...]


def snapshot(
    source: Path, target: Path, *, only: Sequence[str] = (), exclude: Sequence[Path] = ()
) -> Snapshot:
    """Copy the code in `source` to the new folder `target`; see `travelling`."""
    _require_folder(source)
    target.mkdir()
    return _look(source, only, exclude, target)


def measure(source: Path, *, only: Sequence[str] = (), exclude: Sequence[Path] = ()) -> Snapshot:
    """List the files that `snapshot` would copy; reads no file's content."""
    _require_folder(source)
    return _look(source, only, exclude, None)


def unreadable(path: Path, error: OSError) -> LaunchError:
    """Name a file or folder of the code that cannot be read, or is there no more."""
    message = f"cannot read `{path}`, which belongs to the job's code: {error.strerror}"
    hint = "add it to .launchignore"
    if isinstance(error, FileNotFoundError):
        hint = f"try again; if it comes and goes, {hint}"
    return LaunchError(message, hint=hint)


def _require_folder(source: Path) -> None:
    if not source.is_dir():
        message = f"`code: {source}` is not a folder"
        raise NotFound(message, hint="paths in a job file are relative to that file")


def _look(
    source: Path, only: Sequence[str], exclude: Sequence[Path], target: Path | None
) -> Snapshot:
    """Look at all that travels, and copy it where there is a target."""
    num_files = 0
    size = 0
    left_out: list[str] = []
    for entry in travelling(source, only, exclude):
        if entry.kind == "left out":
            left_out.append(entry.name)
        elif entry.kind != "folder":
            num_files += 1
        if entry.kind == "file":
            size += _size(source / entry.name)
        if target is not None:
            _copy(entry, source, target)
    return Snapshot(num_files=num_files, bytes=size, left_out=tuple(left_out))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise unreadable(path, error) from error


def _copy(entry: Entry, source: Path, target: Path) -> None:
    copy = target / entry.name
    if entry.kind == "folder":
        copy.mkdir(parents=True, exist_ok=True)
    elif entry.kind == "link":
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.symlink_to(entry.aim)
    elif entry.kind == "file":
        copy.parent.mkdir(parents=True, exist_ok=True)
        _copy_file(source / entry.name, copy)


def _copy_file(source: Path, target: Path) -> None:
    try:
        read = source.open("rb")
    except OSError as error:  # what the copy itself meets is the disk's
        raise unreadable(source, error) from error
    with read:
        status = os.fstat(read.fileno())
        mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        descriptor = os.open(target, flags, mode)
        try:
            copy_content(read.fileno(), descriptor)
        finally:
            os.close(descriptor)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


# --- What travels ------------------------------------------------------------------------------


Kind = Literal["folder", "file", "link", "left out"]


class Entry(NamedTuple):
    """Something below the source; `aim` is where a link leads to, from the folder it is in."""

    name: str
    kind: Kind
    aim: str = ""


class _Rules:
    """The ignore files met on the way down to a folder, outermost first."""

    def __init__(self, parts: tuple[tuple[str, GitIgnoreSpec], ...] = ()) -> None:
        self._parts = parts

    def with_folder(self, folder: Path, prefix: str) -> _Rules:
        """Add the rules inside a folder; `prefix` is its path below the source, ending in `/`."""
        lines: list[str] = []
        for name in IGNORE_FILES:
            try:
                lines += (
                    (folder / name).read_text(encoding="utf-8-sig", errors="replace").splitlines()
                )
            except OSError:
                continue
        if not lines:
            return self
        # Loaded for the jobs that have ignore files only.
        from pathspec import GitIgnoreSpec

        return _Rules((*self._parts, (prefix, GitIgnoreSpec.from_lines(lines))))

    def ignore(self, path: str) -> bool:
        """Tell whether a path is ignored (folders end in `/`); the innermost file decides."""
        for prefix, spec in reversed(self._parts):
            # Rules from above the source have the way down to it as a negative prefix.
            inner = prefix[1:] + path if prefix.startswith("^") else path.removeprefix(prefix)
            verdict = spec.check_file(inner).include
            if verdict is not None:
                return verdict
        return False


def travelling(source: Path, only: Sequence[str], exclude: Sequence[Path]) -> Iterator[Entry]:
    """Yield all that travels, folders before what is in them, links last.

    `only` names the files or folders that travel (all when empty), `exclude` folders that never
    do. Ignored folders are not even listed. RESULTS is left out, whatever it is. A link to something
    that travels stays a link; any other is left out: what it leads to may be nobody's business but
    the user's.
    Raises NotFound for a part that is not there, LaunchError for one that is elsewhere.
    """
    root = source.resolve()
    rules = _rules_above(root)
    kept_off = {str(each.resolve()) for each in exclude}
    names: set[str] = set()
    links: list[str] = []
    for part in only or ("",):
        for entry in _part(source, root, part, rules, kept_off):
            if entry.kind == "link":
                links.append(entry.name)
                continue
            if entry.kind != "left out":
                names.add(entry.name.rstrip("/"))
            yield entry
    for name in links:
        yield _link(root, name, names)


def _part(source: Path, root: Path, name: str, rules: _Rules, exclude: set[str]) -> Iterator[Entry]:
    path = root / name
    if not path.exists():
        message = f"there is no `{name}` in `{source}`"
        raise NotFound(message, hint="check `code` in the job file")
    if not path.resolve().is_relative_to(root):
        message = f"`{name}` in `{source}` is a link to a place outside it"
        raise LaunchError(message, hint="copy its target into the code")
    if path.is_dir():
        yield from _walk(root, f"{name.rstrip('/')}/" if name else "", rules, exclude)
    else:
        yield Entry(name, "file")


def _link(root: Path, name: str, names: set[str]) -> Entry:
    """Judge a link by the files that are copied."""
    try:
        aim = (root / name).resolve(strict=True)
    except (OSError, RuntimeError):  # leads nowhere, or round in a circle
        return Entry(name, "left out")
    if aim != root and not (aim.is_relative_to(root) and _below(root, aim) in names):
        return Entry(name, "left out")
    # As it was written it may lead through what does not travel, or through the root's own name.
    folder = posixpath.dirname(f"/{name}")
    return Entry(name, "link", posixpath.relpath(f"/{_below(root, aim)}", folder))


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _rules_above(root: Path) -> _Rules:
    """Read the ignore rules of a repository that the source is a folder of."""
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
            entry = _judged(item, prefix + item.name, inside)
            if entry is None:
                continue
            if entry.kind == "folder":
                waiting.append((entry.name, inside))
            else:
                yield entry


def _judged(item: os.DirEntry[str], name: str, rules: _Rules) -> Entry | None:
    """Tell what something in a folder is by its name and kind; None where it is ignored."""
    is_folder, is_link = item.is_dir(follow_symlinks=False), item.is_symlink()
    named = f"{name}/" if is_folder else name
    if rules.ignore(named) or (is_link and rules.ignore(f"{name}/")):
        return None
    if name == RESULTS:
        return Entry(named, "left out")
    if is_link:
        return Entry(name, "link")
    if is_folder:
        return Entry(named, "folder")
    return Entry(name, "file") if item.is_file(follow_symlinks=False) else None


def _parted(prefix: str, items: list[os.DirEntry[str]]) -> tuple[list[os.DirEntry[str]], list[str]]:
    """Part a folder's code from the folders that were fetched into it, itself perhaps."""
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
    """Tell whether a fetch left the entry: results, half of a file, or its own mark."""
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
    except OSError as error:
        raise unreadable(folder, error) from error
    return [each for each in found if each.name not in NEVER_SENT and each.path not in exclude]
