"""Transfers where few files may be open at once, as on a Mac."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.blobs.transfers import open_files, upload
from jobs.blobs.transfers.files import Incoming, Outgoing
from jobs.blobs.transfers.pace import MOST
from jobs.blobs.transfers.partial_file import PartialFile
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from tests.fakes.http_blobs import http_blobs

REPO = Path(__file__).parents[4]
NUM_FILES = 500
# Sends the files of a folder and receives them into another, with that limit of open files.
CHILD = """
import hashlib, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from jobs.blobs.transfers.authority import SharedKey
from jobs.blobs.transfers.azure_store import AzureStore
from jobs.blobs.transfers.container import Container
from jobs.blobs.transfers.files import Incoming, Outgoing

url, source, target = sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5])
store = AzureStore(Container(url, SharedKey("account", "a2V5")), "data", lambda error: error)
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
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(("soft", "hard", "then"), [(256, 4096, 896), (48, 64, 64)])
def test_many_files_go_and_come_back_where_few_may_be_open(tmp_path, soft, hard, then):
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    for number in range(NUM_FILES):
        (source / str(number)).write_bytes(b"%d" % number * 1000)
    with http_blobs() as blobs:
        # Slow enough that as many as may be are under way.
        blobs.hook = lambda _kind, _asked: time.sleep(0.02)
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(soft), str(hard), blobs.url, source, target],
            cwd=REPO,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stderr == ""
    assert (done.returncode, done.stdout) == (0, f"{then}\n")
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        path.name: path.read_bytes() for path in source.iterdir()
    }


def test_as_many_requests_as_fit_into_what_may_be_open(monkeypatch):
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(open_files.os, "listdir", lambda _: ["0"] * 20)
    given = {(256, 256): (256 - 36) // 3, (64, 64): 9, (30, 30): 2, (1 << 20, 1 << 20): MOST}
    for limits, expected in given.items():
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)
        assert open_files.most_requests() == expected


def test_too_many_open_files_have_a_hint_of_their_own(tmp_path, monkeypatch):
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(upload.os, "open", refuse)
    gone = Outgoing(name="x", path=tmp_path / "x", bytes=1, md5=b"")
    hint = "ulimit -n 1024, and the same again: too few files may be open in this shell"
    with pytest.raises(LaunchError, match="cannot be read: Too many open files") as sent:
        upload._open(gone)
    new = Incoming(name="x", path=tmp_path / "x", bytes=1, sha256="", mode=0o644)
    with pytest.raises(EnvironmentFailure, match="cannot be written: Too many") as received:
        PartialFile(new, is_resumable=False)
    assert (sent.value.hint, received.value.hint) == (hint, hint)
