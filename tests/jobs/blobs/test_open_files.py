"""Transfers where few files may be open at once, as on a Mac."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from jobs.blobs import upload
from jobs.blobs.concurrency import NUM_REQUESTS
from jobs.blobs.files import Incoming, Outgoing
from jobs.blobs.partial_file import PartialFile
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from tests.busy import HANG_S
from tests.fakes.http_blobs import http_blobs

REPO = Path(__file__).parents[3]
NUM_FILES = 300
# So many are enough, as docs/data.md says.
FEW_FILES = 128
# Sends the files of a folder and receives them into another, with that limit of open files.
CHILD = """
import hashlib, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from jobs.blobs.authority import SharedKey
from jobs.blobs.azure_store import AzureStore
from jobs.blobs.container import Container
from jobs.blobs.files import Incoming, Outgoing

url, source, target = sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5])
store = AzureStore(Container(url, SharedKey("account", "a2V5")), lambda error: error)
contents = {path.name: path.read_bytes() for path in source.iterdir()}
store.send([
    Outgoing(name=name, path=source / name, bytes=len(each), md5=hashlib.md5(each).digest())
    for name, each in contents.items()
], lambda *_: None)
store.receive([
    Incoming(name=name, path=target / name, bytes=len(each),
             sha256=hashlib.sha256(each).hexdigest(), mode=0o644)
    for name, each in contents.items()
], lambda *_: None)
"""


class Gate:
    """Lets requests of a kind go once as many as a transfer may have are under way at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._on: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def __call__(self, kind: str, _asked: object) -> None:
        with self._changed:
            self._on[kind] += 1
            self.most[kind] = max(self.most[kind], self._on[kind])
            self._changed.notify_all()
            is_open = self._changed.wait_for(lambda: self.most[kind] >= NUM_REQUESTS, HANG_S)
            self._on[kind] -= 1
        assert is_open, self.most


@pytest.mark.parametrize("limit", [256, FEW_FILES])
def test_many_files_go_and_come_back_where_few_may_be_open(tmp_path, limit):
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    for number in range(NUM_FILES):
        (source / str(number)).write_bytes(b"%d" % number * 1000)
    with http_blobs() as blobs:
        blobs.hook = gate = Gate()
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(limit), str(limit), blobs.url, source, target],
            cwd=REPO,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stderr == ""
    assert done.returncode == 0
    assert gate.most == {"PUT blob": NUM_REQUESTS, "GET blob": NUM_REQUESTS}
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        path.name: path.read_bytes() for path in source.iterdir()
    }


def test_too_many_open_files_have_a_hint_of_their_own(tmp_path, monkeypatch):
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(upload.os, "open", refuse)
    gone = Outgoing(name="x", path=tmp_path / "x", bytes=1, md5=b"")
    hint = "ulimit -n 1024, then type the same again: this shell may open too few files"
    with pytest.raises(LaunchError, match="cannot be read: Too many open files") as sent:
        upload._open(gone)
    new = Incoming(name="x", path=tmp_path / "x", bytes=1, sha256="", mode=0o644)
    with pytest.raises(EnvironmentFailure, match="cannot be written: Too many") as received:
        PartialFile(new, is_resumable=False)
    assert (sent.value.hint, received.value.hint) == (hint, hint)
