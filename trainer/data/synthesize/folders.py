"""Chooses the folder of a made data set, and puts a finished one in its place."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from trainer.common.errors import TrainingError

# Another number for other pictures of the same arguments.
VERSION = 1


def default_folder(**arguments: object) -> Path:
    """Give a folder of this machine and user for the set of these arguments.

    Raises TrainingError where its parent, whose name anybody can guess, may be somebody else's.
    """
    digest = hashlib.sha256(json.dumps([VERSION, arguments], sort_keys=True).encode()).hexdigest()
    own = Path(tempfile.gettempdir()) / f"trainyard-{os.getuid()}"
    try:
        with contextlib.suppress(FileExistsError):
            own.mkdir(parents=True, mode=0o700)
        found = own.lstat()
    except OSError as error:
        message = f"`{own}` cannot be made: {error.strerror}"
        raise TrainingError(message, hint="set TMPDIR to a folder with room") from None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        message = f"`{own}` is not a folder of yours alone, so nothing in it is believed"
        raise TrainingError(message, hint="set TMPDIR to a folder of your own")
    return own / f"pictures-{digest[:12]}"


@contextlib.contextmanager
def whole_folder(folder: Path, is_there: Callable[[Path], bool], *, what: str) -> Iterator[Path]:
    """Yield an empty folder that is given the name `folder` at the end.

    Any number of processes may make the same set at once: where one was faster, `is_there` gets the
    folder just made and tells whether the other one counts. Raises TrainingError, which names
    `what` is made, where no file can be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            yield partial
            partial.chmod(0o755)
            try:
                partial.replace(folder)
            except OSError:
                if not is_there(partial):
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        message = f"no {what} can be made in `{folder.parent}`: {error.strerror}"
        raise TrainingError(message, hint="set TMPDIR to a folder with room") from None
