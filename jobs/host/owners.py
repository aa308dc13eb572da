"""Find the owner of files and folders, and other users who could change them.

Standard library only: set-up calls it before any environment exists.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure

# Ours, in the folders that a user names for the programs of all projects.
FOLDER = "trainyard"


def xdg_folder(environ: Mapping[str, str], name: str) -> Path | None:
    """Give `trainyard` in the folder that an XDG variable names; None where it names none.

    A relative path counts as none: the specification says so, it is whatever folder one is in.
    Raises EnvironmentFailure where others could change what is kept there.
    """
    base = Path(environ.get(name, ""))
    if not base.is_absolute():
        return None
    if reason := _why_shared(base / FOLDER):
        message = f"{name}={base} is not trusted: {reason}"
        raise EnvironmentFailure(
            message, hint=f"set {name} to a folder that only you can write to, or unset it"
        )
    return base / FOLDER


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


def foreign_owner(path: Path) -> str | None:
    """Name the user whose a path is if that is another one; None if it is ours, or is not there."""
    try:
        uid = path.lstat().st_uid
    except OSError:
        return None
    return None if os.name != "posix" or uid in _our_uids() else _user(uid)


def owner_of(path: Path) -> str:
    """Name the user whose a path is, with the uid."""
    return _user(path.stat().st_uid)


def _why_shared(folder: Path) -> str | None:
    """Name another user who could change files of a folder, which may be missing; None if there is none."""
    if os.name != "posix":
        return None
    above = next(each for each in folder.parents if each.exists())
    status = above.stat()
    if status.st_uid not in _our_uids():
        return f"{above} belongs to {_user(status.st_uid)}"
    # In a sticky folder, as /tmp, nobody else can take ours away.
    if _is_open_to_others(status) and not status.st_mode & stat.S_ISVTX:
        return f"{above} can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return why_foreign(folder) if os.path.lexists(folder) else None


def _our_uids() -> set[int]:
    """Give our uid and root's; under sudo also the caller's, as git does."""
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
    """Tell whether the group is root's or the owner's alone, as under umask 002."""
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
