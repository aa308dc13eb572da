"""Blobs received as one version of theirs, where nobody knows a SHA-256: whole, or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.blobs.files import BLOCK_BYTES, Incoming
from jobs.contracts.errors import EnvironmentFailure
from tests import seeds
from tests.fakes.http_blobs import etag_of
from tests.fakes.scripted_server import Asked, answer
from tests.fakes.transfers import (
    LARGE,
    TWO_BLOCKS,
    Moved,
    contents_of_all_sizes,
    incoming,
    store_of,
)
from tests.folders import read_folder

pytestmark = pytest.mark.usefixtures("quick", "leaves_nothing_open")


def version(content: bytes, path: Path, name: str, *, md5: bytes | None = None) -> Incoming:
    """What is wanted where nobody knows its SHA-256, as of a run's outputs."""
    size, etag = len(content), etag_of(content)
    return Incoming(name=name, path=path, bytes=size, mode=0o644, etag=etag, md5=md5)


def test_versions_arrive_and_are_named(blobs, tmp_path):
    blobs.blobs.update(contents_of_all_sizes())
    files = [
        version(content, tmp_path / name, name, md5=hashlib.md5(content).digest())
        for name, content in blobs.blobs.items()
    ]
    arrived: list[Incoming] = []
    store_of(blobs.url).receive(files, Moved(), arrived=arrived.append)
    assert read_folder(tmp_path) == blobs.blobs
    assert sorted(arrived, key=lambda each: each.name) == sorted(files, key=lambda each: each.name)


@pytest.mark.parametrize("size", [1000, TWO_BLOCKS])
@pytest.mark.parametrize("is_gone", [False, True], ids=["changed", "gone"])
def test_a_version_that_goes_meanwhile_is_left_out(blobs, tmp_path, size, is_gone):
    old, new = seeds.content(size), seeds.content(size)
    blobs.blobs = {"x": old, "other": b"other"}
    num_left = 1 if size == TWO_BLOCKS else 0

    def change(kind: str, asked: Asked) -> None:
        nonlocal num_left
        if asked.target.startswith("/account/data/x"):
            num_left -= 1
            if num_left < 0:
                blobs.blobs.pop("x", None)
                if not is_gone:
                    blobs.blobs["x"] = new

    blobs.hook = change
    arrived: list[Incoming] = []
    other = version(b"other", tmp_path / "other", "other")
    files = [version(old, tmp_path / "x", "x"), other]
    store_of(blobs.url).receive(files, lambda *_: None, arrived=arrived.append)
    assert arrived == [other]
    assert read_folder(tmp_path) == {"other": b"other"}


@pytest.mark.parametrize("change", ["gone", "changed", "cut", "empty"])
@pytest.mark.parametrize("num_left", [1, 2])
def test_a_blob_that_goes_while_it_is_read_has_no_shorter_content(blobs, change, num_left):
    content = seeds.content(LARGE)
    blobs.blobs["x"] = content

    def take_away(kind: str, asked: Asked) -> bytes | None:
        if kind != "GET blob" or blobs.asked[kind] <= num_left:
            return None
        if change == "cut":
            return answer(416, x_ms_error_code="InvalidRange")
        if change == "empty":
            return answer(206, b"", Content_Range=f"bytes 0-0/{LARGE}", ETag="x")
        blobs.blobs.pop("x", None)
        if change == "changed":
            blobs.blobs["x"] = content[: BLOCK_BYTES // 2]
        return None

    blobs.hook = take_away
    read: list[bytes] = []
    with pytest.raises(EnvironmentFailure) as caught:
        read.extend(store_of(blobs.url).content("x"))
    assert b"".join(read) == content[: num_left * BLOCK_BYTES]
    if change != "changed":
        assert caught.value.message == "`x` went away, or changed, while it was read"


def test_a_version_goes_on_where_it_was_cut_off(blobs, tmp_path):
    content = seeds.content(LARGE)
    blobs.blobs["x"] = content
    num_left = 2

    def refuse(kind: str, asked: Asked) -> bytes | None:
        nonlocal num_left
        num_left -= 1
        return answer(403, x_ms_error_code="AuthorizationFailure") if num_left < 0 else None

    blobs.hook = refuse
    file = version(content, tmp_path / "x", "x")
    with pytest.raises(EnvironmentFailure, match="AuthorizationFailure"):
        store_of(blobs.url).receive([file], Moved())
    (journal,) = tmp_path.glob(".trainyard-*.ranges")
    num_here = len(journal.read_bytes().splitlines())
    blobs.hook = lambda _kind, _asked: None
    blobs.asked.clear()
    store_of(blobs.url).receive([file], Moved())
    assert read_folder(tmp_path) == {"x": content}
    assert (num_here, blobs.asked["GET blob"]) in [(1, 2), (2, 1), (0, 3)]


@pytest.mark.parametrize("size", [1000, TWO_BLOCKS])
def test_a_version_that_has_not_its_md5_never_gets_the_name(blobs, tmp_path, size):
    content = seeds.content(size)
    blobs.blobs["x"] = content
    file = version(content, tmp_path / "x", "x", md5=bytes(16))
    with pytest.raises(EnvironmentFailure, match="`x` arrived damaged from the store: its MD5 is"):
        store_of(blobs.url).receive([file], Moved())
    assert not (tmp_path / "x").exists()


def test_a_listing_that_feeds_a_transfer_has_one_thread(blobs, tmp_path):
    """However many requests it takes: a thread runs one loop at a time."""
    names = [str(number) for number in range(5)]
    blobs.blobs = {name: name.encode() for name in names}
    store, threads = store_of(blobs.url), set[str]()
    ran, real = asyncio.Runner.run, store.read_range

    def run(self, *args, **options):
        threads.add(threading.current_thread().name)
        return ran(self, *args, **options)

    def wanted() -> Iterator[Incoming]:
        for name in names:
            content = real(name, 0, 10)
            assert content is not None
            yield incoming(content, tmp_path / name, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio.Runner, "run", run)
        store.receive(wanted(), lambda *_: None)
    assert read_folder(tmp_path) == blobs.blobs
    assert len(threads) == 2
