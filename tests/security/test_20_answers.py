"""Finding 20: a store that answers without end takes all memory and a core for a minute.

The attacker runs the store that an environment names, or stands in for it: a chunk of 2 GiB, a line
that never ends, more than the range that was asked for. Here what is kept in memory is bounded.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from jobs.blobs import session
from jobs.blobs.session import LONGEST_BODY
from jobs.blobs.store import open_data_store
from jobs.contracts.errors import EnvironmentFailure
from tests.fakes.scripted_server import Asked, answer, scripted_server
from tests.jobs.blobs.test_store import environment_of

CHUNKED = b"HTTP/1.1 206 Said\r\nTransfer-Encoding: chunked\r\nContent-Range: bytes 0-9/10\r\n\r\n"
# Each more than what is kept; twice as much at once would be too much as well.
LONG = bytes(LONGEST_BODY + 1)
ANSWERS = {
    "one chunk": CHUNKED + b"7fffffff\r\n" + LONG,
    "many chunks": CHUNKED + (b"100000\r\n" + bytes(1 << 20) + b"\r\n") * 17,
    "no end of a line": CHUNKED + b"1" * (LONGEST_BODY + 1),
    "less than nothing": CHUNKED + b"-5\r\n\r\n",
    "a length": answer(200, LONG),
    "no length": b"HTTP/1.0 200 Said\r\n\r\n" + LONG,
    "an error": answer(404, LONG),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask once only, and wait for nothing."""
    monkeypatch.setattr(session, "_BACKOFF_S", 0.001)
    monkeypatch.setattr(session.Session.run, "__kwdefaults__", {"tries": 1})


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_without_end_is_refused(tmp_path: Path, kind: str) -> None:
    said = ANSWERS[kind]
    with scripted_server(lambda _: said) as server:
        environment = environment_of(tmp_path, f"http://127.0.0.1:{server.port}/account")
        store = open_data_store(environment)
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(EnvironmentFailure):
            store.read("x")
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert grown_kb < 100_000


def test_a_range_is_never_longer_than_what_was_asked_for(tmp_path: Path) -> None:
    content = bytes(range(200))

    def serve(asked: Asked) -> bytes:
        piece = content[:100] if asked.target.endswith("/good") else content
        return answer(206, piece, Content_Range="bytes 0-99/200")

    with scripted_server(serve) as server:
        environment = environment_of(tmp_path, f"http://127.0.0.1:{server.port}/account")
        store = open_data_store(environment)
        assert store.read_range("good", 0, 100) == content[:100]
        with pytest.raises(EnvironmentFailure, match="an answer of more than 100 bytes"):
            store.read_range("bad", 0, 100)


def test_chunks_of_all_sizes_are_one_answer(tmp_path: Path) -> None:
    pieces = [b"a", b"b" * 70_000, b"c" * 300_000, b"d"]
    chunks = b"".join(b"%x;x=y\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    with scripted_server(lambda _: CHUNKED + chunks + b"0\r\n\r\n") as server:
        environment = environment_of(tmp_path, f"http://127.0.0.1:{server.port}/account")
        store = open_data_store(environment)
        assert [store.read("x"), store.read("y")] == [b"".join(pieces)] * 2
    assert server.num_connections == 1
