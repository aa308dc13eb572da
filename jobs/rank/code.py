"""Copy the code of an Azure ML job to the folder of its ranks; refuse files that differ from the sent ones.

LIST_FILE has the SHA-256 of each file that was sent, and the job names the list by its own digest,
which its command has checked (jobs/engines/azure_ml/node_job.py). So whoever may write to the store can
change files or add some, and nothing of it is run. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os

from jobs.rank.node import Unprepared

CHUNK = 1 << 20
# What we put beside the user's files lies in this folder.
OURS = ".trainyard"
LIST_FILE = f"{OURS}/files.json"
SHAPE_FILE = f"{OURS}/shape.json"  # what a store of blobs does not keep


class Altered(Unprepared):
    """A file of the code differs from the sent one."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the code on the node differs from the code that was sent: `{name}` is missing or has other content "
            "(hint: it was changed in the workspace's store; tell the owner of the stack)"
        )


def sent_files(source: str) -> dict[str, str]:
    """Read the list: names of files, and the SHA-256 of each."""
    with open(f"{source}/{LIST_FILE}", encoding="utf-8") as file:
        found: dict[str, str] = json.load(file)
    return found


def copy_sent(source: str, target: str) -> None:
    """Copy the files that were sent, but `outputs` and ours, into the new folder `target`; raises Altered."""
    made = {target}
    os.makedirs(target)
    for name, digest in sent_files(source).items():
        if name.partition("/")[0] in (OURS, "outputs"):
            continue
        path = f"{target}/{name}"
        if (folder := os.path.dirname(path)) not in made:
            os.makedirs(folder, exist_ok=True)
            made.add(folder)
        try:
            copied = _copy(f"{source}/{name}", path)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise Altered(name) from None
        if copied != digest:
            raise Altered(name)


def read_sent(source: str, name: str) -> bytes | None:
    """Read one small file, None where none of that name was sent; raises Altered."""
    digest = sent_files(source).get(name)
    if digest is None:
        return None
    try:
        with open(f"{source}/{name}", "rb") as file:
            content = file.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise Altered(name) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise Altered(name)
    return content


def _copy(source: str, target: str) -> str:
    """Copy a file; gives the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    with open(source, "rb") as read:
        mode = os.fstat(read.fileno()).st_mode & 0o777
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(target, flags, mode | 0o200), "wb") as write:
            while chunk := read.read(CHUNK):
                digest.update(chunk)
                write.write(chunk)
    return digest.hexdigest()
