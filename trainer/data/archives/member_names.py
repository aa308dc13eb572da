"""Refuses names in an archive that are not safe as files: whole, plain, inside, each once."""

from __future__ import annotations

import re
import unicodedata

from trainer.common.errors import TrainingError
from trainer.data.archives.file import GET_AGAIN

# Real data sets are a few folders deep; some systems refuse names and paths longer than these.
MOST_FOLDERS = 32
LONGEST_NAME_BYTES = 255
LONGEST_PATH_BYTES = 1024
# C0 and C1 controls, and marks that turn or hide text where a name is shown.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
# What nearly all names are like: a million are looked at. A device's name is not.
_PART = r"[A-Za-z0-9_][A-Za-z0-9_-]{4,100}(?:\.[A-Za-z0-9]{1,8}){0,2}"
_PLAIN = re.compile(rf"{_PART}(?:/{_PART}){{0,3}}")
# The names that jobs/datasets/paths.py refuses on Windows, too: tests/contract holds both to one table.
_DEVICES = re.compile(
    r"(con|prn|aux|nul|(com|lpt)[0-9\u00b9\u00b2\u00b3]|conin\$|conout\$) *(\..*)?", re.IGNORECASE
)


def refusal(archive: str, name: str | bytes, why: str) -> TrainingError:
    """Give the error for an archive with a member that cannot be right."""
    shown = ascii(name) if len(name) < 80 else f"{name[:60]!a}..."
    return TrainingError(f"`{archive}` is refused: {why}: {shown}", hint=GET_AGAIN)


class MemberNames:
    """The names of one archive's members so far; a second one of a kind is refused.

    Names that only differ in case or in how accents are written count as one: they are one file on
    some systems.
    """

    def __init__(self, archive: str) -> None:
        self._archive = archive
        self._files: set[str] = set()
        self._folders: dict[str, str] = {}

    def file(self, name: str) -> str:
        """Give a file's path inside the archive, `a/b.jpg`; raises TrainingError if it is unsafe."""
        path = self._path(name)
        folder, _, _ = path.rpartition("/")
        if folder:
            self._add_folder(folder, name)
        folded = _fold(path)
        if folded in self._files:
            raise refusal(self._archive, name, "two members are the same file")
        if folded in self._folders:
            raise refusal(self._archive, name, "a member is a file and a folder")
        self._files.add(folded)
        return path

    def folder(self, name: str) -> None:
        """Take a folder's name in; raises TrainingError if it is unsafe."""
        if name.rstrip("/") not in {"", "."} or name.startswith("/"):
            self._add_folder(self._path(name.rstrip("/")), name)

    def _add_folder(self, path: str, name: str) -> None:
        if self._folders.get(folded := _fold(path)) == path:
            return
        if folded in self._folders:
            raise refusal(self._archive, name, "two folders differ in case only")
        if folded in self._files:
            raise refusal(self._archive, name, "a member is a file and a folder")
        self._folders[folded] = path
        parent, _, _ = path.rpartition("/")
        if parent:
            self._add_folder(parent, name)

    def _path(self, name: str) -> str:
        path = name.removeprefix("./")
        if not _PLAIN.fullmatch(path):
            why = _why_unsafe(path, path.split("/"))
            if why:
                raise refusal(self._archive, name, why)
        return path


def _why_unsafe(name: str, parts: list[str]) -> str | None:
    """Explain why a name is unsafe as a path; None if it is safe."""
    checks = {
        "a name is absolute": name.startswith("/"),
        "a name leads out of its folder": ".." in parts,
        "a name has characters that cannot be seen": _HIDDEN.search(name),
        "a name has a backslash or a colon": "\\" in name or ":" in name,
        "a name has an empty part": not all(parts) or "." in parts,
        "a name begins or ends with a space, or ends with a dot": any(
            part.strip(" ").rstrip(".") != part for part in parts
        ),
        f"a name is {len(parts)} folders deep": len(parts) > MOST_FOLDERS,
        "a name is not Unicode text": not _can_encode(name),
        "a name is too long": _is_long(parts),
        "a name is a device on Windows": any(_DEVICES.fullmatch(part) for part in parts),
    }
    return next((why for why, holds in checks.items() if holds), None)


def _fold(path: str) -> str:
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


def _can_encode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_long(parts: list[str]) -> bool:
    sizes = [len(part.encode("utf-8", "surrogatepass")) for part in parts]
    return max(sizes) > LONGEST_NAME_BYTES or sum(sizes) + len(parts) - 1 > LONGEST_PATH_BYTES
