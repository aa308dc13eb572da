"""One contract for what keeps blobs: the stand-ins of the tests answer as Azurite does, which judges.

Each case runs on the store in memory, on the one behind HTTP and on a real Azurite, the last two
through the product's own client. `in_memory` and `http` are the stand-ins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from jobs.blobs import azure_store, session
from jobs.blobs.authority import SharedKey
from jobs.blobs.azure_store import AzureStore
from jobs.blobs.container import Container
from jobs.blobs.files import BLOCK_BYTES, Incoming, Outgoing, outgoing
from jobs.blobs.store import BlobStore, Copy, open_data_store
from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from tests.busy import HANG_S
from tests.fakes.blob_store import MemoryStore
from tests.fakes.http_blobs import http_blobs, md5_of
from tests.fakes.range_server import RangeServer
from tests.odd_names import FINE


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_BACKOFF_S", 0.001)
    monkeypatch.setattr(azure_store, "PAGE_BLOBS", 3)


@pytest.fixture(params=["in_memory", "http", "azurite"])
def store(request: pytest.FixtureRequest) -> Iterator[BlobStore]:
    """An empty store."""
    if request.param == "in_memory":
        yield MemoryStore()
    elif request.param == "http":
        with http_blobs() as blobs:
            yield _store_at(blobs.url)
    else:
        made = open_data_store(request.getfixturevalue("judge"))
        yield made
        made.delete([blob.name for blob in made.list("")])


def _store_at(url: str) -> AzureStore:
    container = Container(url, SharedKey("account", "a2V5"))
    return AzureStore(container, lambda error: EnvironmentFailure(error.text))


def names(store: BlobStore, prefix: str = "") -> list[str]:
    return [blob.name for blob in store.list(prefix)]


def sizes(store: BlobStore) -> dict[str, tuple[int, bytes | None]]:
    return {blob.name: (blob.bytes, blob.md5) for blob in store.list("")}


def etag(store: BlobStore, name: str) -> str:
    return next(blob.etag for blob in store.list(name) if blob.name == name)


def moved_by(counts: list[tuple[int, int]]):
    return lambda files, num_bytes, _found=0: counts.append((files, num_bytes))


def total(counts: list[tuple[int, int]]) -> tuple[int, int]:
    """Files and bytes that were told of, in however many calls."""
    return sum(files for files, _ in counts), sum(num_bytes for _, num_bytes in counts)


def file_of(folder: Path, name: str, content: bytes) -> Outgoing:
    path = folder / hashlib.sha256(name.encode() + content).hexdigest()
    path.write_bytes(content)
    return outgoing(name, path)[0]


def send(store: BlobStore, folder: Path, contents: dict[str, bytes]) -> tuple[int, int]:
    counts: list[tuple[int, int]] = []
    store.send([file_of(folder, *each) for each in contents.items()], moved_by(counts))
    return total(counts)


def receive(store: BlobStore, *files: Incoming) -> tuple[list[str], tuple[int, int]]:
    """What arrived, and what `moved` was told of."""
    arrived: list[str] = []
    counts: list[tuple[int, int]] = []
    store.receive(files, moved_by(counts), arrived=lambda file: arrived.append(file.name))
    return sorted(arrived), total(counts)


def copy(store: BlobStore, *copies: Copy) -> tuple[int, int]:
    counts: list[tuple[int, int]] = []
    store.copy(copies, moved_by(counts))
    return total(counts)


def wanted(folder: Path, name: str, content: bytes, *, of: str = "", **more: str) -> Incoming:
    """A blob that is to have this content; `of` is the version that it is to be of."""
    known = {"etag": of} if of else {"sha256": hashlib.sha256(content).hexdigest()}
    path = folder / "got" / name
    return Incoming(name=name, path=path, bytes=len(content), mode=0o644, **{**known, **more})


# --- Small blobs --------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"first", b"\x00\r\n\xff"])
def test_create_writes_where_nothing_is_and_nowhere_else(store, content):
    assert store.read("a") is None
    assert store.create("a", content) is True
    assert store.create("a", b"second") is False
    assert store.read("a") == content
    assert sizes(store) == {"a": (len(content), hashlib.md5(content).digest())}


def test_of_many_that_create_one_name_one_does(store):
    contents = [str(number).encode() for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(store.create, repeat("a"), contents))
    assert made.count(True) == 1
    assert store.read("a") == contents[made.index(True)]


def test_what_is_missing_is_missing_in_each_way_of_asking(store, tmp_path):
    assert store.read("gone") is None
    assert store.read_range("gone", 0, 1) is None
    with pytest.raises(NotFound):
        list(store.content("gone"))
    store.delete(["gone", "gone too"])
    assert copy(store, Copy(source="gone", name="b", bytes=1)) == (0, 0)
    with pytest.raises(EnvironmentFailure):
        receive(store, wanted(tmp_path, "gone", b"x"))
    assert receive(store, wanted(tmp_path, "gone", b"x", of="0x1")) == ([], (0, 0))
    assert sizes(store) == {}
    assert not (tmp_path / "got" / "gone").exists()


def test_a_deleted_name_is_free(store):
    store.create("a", b"1")
    store.create("b", b"2")
    store.delete(["a", "gone"])
    assert (store.read("a"), names(store)) == (None, ["b"])
    assert store.create("a", b"3") is True


# --- Listing ------------------------------------------------------------------------------------


def test_a_listing_has_the_prefix_and_the_order_of_names_over_several_pages(store):
    made = ["b/2", "a", "b/10", "b", "b/1", "B", "b-", "b/ü", "b/~", "c"]
    for name in made:
        store.create(name, b"x")
    assert names(store) == sorted(made)
    assert names(store, "b/") == ["b/1", "b/10", "b/2", "b/~", "b/ü"]
    assert names(store, "b/1") == ["b/1", "b/10"]
    assert names(store, "d") == []


@pytest.mark.parametrize("every", [5, 1])
def test_each_fine_name_arrives_equal(store, every):
    """One name in five; all of them, on Azurite, in `make faults`."""
    fine = [name for name in FINE if len(name) < 200][::every]
    for name in fine:
        assert store.create(f"n/{name}", name.encode()) is True
    assert sorted(names(store, "n/")) == sorted(f"n/{name}" for name in fine)
    for name in fine:
        assert store.read(f"n/{name}") == name.encode()
    counts = copy(
        store,
        *(Copy(source=f"n/{n}", name=f"m/{n}", bytes=len(n.encode())) for n in fine),
    )
    assert counts == (len(fine), sum(len(name.encode()) for name in fine))
    assert sorted(names(store, "m/")) == sorted(f"m/{name}" for name in fine)


# --- Versions and ranges ------------------------------------------------------------------------


def test_a_range_ends_with_the_blob_and_none_begins_after_it(store):
    store.create("a", b"0123456789")
    store.create("empty", b"")
    asked = {(0, 3): b"012", (3, 10): b"3456789", (8, 20): b"89", (11, 12): None, (99, 100): None}
    assert {each: store.read_range("a", *each) for each in asked} == asked
    # Azure refuses a range of nothing (azure-storage-blob's _download.py works around it); Azurite
    # answers 206 without a byte where the range begins at the very end. Both mean the same here.
    assert not store.read_range("a", 10, 11)
    assert not store.read_range("empty", 0, 1)
    assert b"".join(store.content("empty")) == b""
    assert b"".join(store.content("a")) == b"0123456789"


def test_each_write_makes_another_version_even_of_equal_content(store, tmp_path):
    store.create("a", b"0123")
    first = etag(store, "a")
    assert store.read_range("a", 1, 3, etag=first) == b"12"
    send(store, tmp_path, {"a": b"0123"})
    second = etag(store, "a")
    assert first != second
    assert store.read_range("a", 1, 3, etag=first) is None
    assert store.read_range("a", 1, 3, etag=second) == b"12"
    store.delete(["a"])
    store.create("a", b"0123")
    assert etag(store, "a") not in {first, second}


# --- Files --------------------------------------------------------------------------------------


def test_files_go_there_and_back_with_their_sizes_and_md5s(store, tmp_path):
    contents = {"empty": b"", "small": b"1", "large": bytes(range(256)) * 65_536 + b"end"}
    assert len(contents["large"]) > 2 * BLOCK_BYTES
    assert send(store, tmp_path, contents) == (3, sum(map(len, contents.values())))
    assert sizes(store) == {
        name: (len(content), hashlib.md5(content).digest()) for name, content in contents.items()
    }
    files = [wanted(tmp_path, *each) for each in contents.items()]
    assert receive(store, *files) == (sorted(contents), (3, sum(map(len, contents.values()))))
    assert {file.name: file.path.read_bytes() for file in files} == contents


def test_sending_overwrites_and_the_last_of_a_race_is_whole(store, tmp_path):
    send(store, tmp_path, {"a": b"old"})
    contents = [str(number).encode() * 1000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: send(store, tmp_path, {"a": content}), contents))
    kept = store.read("a")
    assert kept in contents
    assert sizes(store) == {"a": (1000, hashlib.md5(kept).digest())}


def test_a_file_that_changed_is_not_sent(store, tmp_path):
    file = file_of(tmp_path, "a", b"0123")
    file.path.write_bytes(b"4567")
    with pytest.raises(LaunchError, match="changed while it was being sent"):
        store.send([file], lambda *_: None)
    assert names(store) == []


def test_a_file_is_received_only_with_its_content_and_of_its_version(store, tmp_path):
    send(store, tmp_path, {"a": b"0123", "b": b"4567"})
    version = etag(store, "a")
    with pytest.raises(EnvironmentFailure, match="with another content"):
        receive(store, wanted(tmp_path, "a", b"9999"))
    assert not (tmp_path / "got" / "a").exists()
    send(store, tmp_path, {"a": b"0123"})
    files = [wanted(tmp_path, "a", b"0123", of=version), wanted(tmp_path, "b", b"4567")]
    assert receive(store, *files) == (["b"], (1, 4))
    newest = wanted(tmp_path, "a", b"0123", of=etag(store, "a"))
    assert receive(store, newest) == (["a"], (1, 4))
    assert newest.path.read_bytes() == b"0123"


# --- Copies -------------------------------------------------------------------------------------


def test_a_copy_overwrites_and_has_the_content_and_md5_of_its_source(store, tmp_path):
    send(store, tmp_path, {"old/a": b"0123", "old/b": b"", "new/a": b"before"})
    copies = [
        Copy(source="old/a", name="new/a", bytes=4),
        Copy(source="old/gone", name="new/gone", bytes=4),
        Copy(source="old/b", name="new/b", bytes=0),
    ]
    assert copy(store, *copies) == (2, 4)
    found = sizes(store)
    assert found["new/a"] == found["old/a"] == (4, hashlib.md5(b"0123").digest())
    assert found["new/b"] == (0, hashlib.md5(b"").digest())
    assert "new/gone" not in found
    assert store.read("new/a") == b"0123"


def test_a_copy_inside_of_a_store_is_of_what_is_there_whatever_md5_was_told(store, tmp_path):
    send(store, tmp_path, {"a": b"0123"})
    told = Copy(source="a", name="b", bytes=4, md5=hashlib.md5(b"other").digest())
    assert copy(store, told) == (1, 4)
    assert store.read("b") == b"0123"


# --- Ranges as the trainer asks for them, without an SDK -----------------------------------------

CONTENT = b"0123456789"
Answer = tuple[int, dict[str, str], bytes]
SHOWN = ("Content-Range", "Content-MD5", "x-ms-blob-content-md5", "x-ms-error-code")


@pytest.fixture(params=["range_server", "http", "azurite"])
def asking(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., tuple[Answer, str]]]:
    """Asks a server that has the blobs `a` and `empty`; gives the answer, and the blob's version."""
    with ExitStack() as opened:
        field, sas = "Range", ""
        if request.param == "range_server":
            (tmp_path / "a").write_bytes(CONTENT)
            (tmp_path / "empty").write_bytes(b"")
            server = RangeServer(tmp_path)
            opened.callback(server.stop)
            url, sas = server.endpoint, server.sas
        elif request.param == "http":
            blobs = opened.enter_context(http_blobs())
            url, field, store = blobs.url, "x-ms-range", _store_at(blobs.url)
        else:
            environment = request.getfixturevalue("judge")
            store = open_data_store(environment)
            url, sas = f"{environment.storage.blob_endpoint}/data", store.read_only_sas("", 600)
        if request.param != "range_server":
            assert store.create("a", CONTENT)
            assert store.create("empty", b"")
            opened.callback(store.delete, ["a", "empty"])

        def ask(name: str, span: str, *, proof: str = sas, **headers: str) -> tuple[Answer, str]:
            fields = {field: f"bytes={span}", "x-ms-version": "2021-12-02"}
            fields |= {key.replace("_", "-"): value for key, value in headers.items()}
            asked = Request(f"{url}/{name}?{proof}", headers=fields)
            try:
                answer = urlopen(asked, timeout=HANG_S)
            except HTTPError as error:
                answer = error
            with answer:
                shown = {key: answer.headers[key] for key in SHOWN if key in answer.headers}
                return (answer.status, shown, answer.read()), answer.headers.get("ETag", "")

        yield ask


def test_a_range_is_answered_with_its_place_and_the_md5_of_the_whole(asking):
    whole = {"x-ms-blob-content-md5": md5_of(CONTENT)}
    for span, told, body in (("2-4", "2-4", b"234"), ("8-20", "8-9", b"89")):
        answer, version = asking("a", span)
        assert answer == (206, {"Content-Range": f"bytes {told}/10", **whole}, body)
        again, _ = asking("a", span, If_Match=version)
        assert again == answer
    checked, _ = asking("a", "2-4", x_ms_range_get_content_md5="true")
    shown = {"Content-Range": "bytes 2-4/10", "Content-MD5": md5_of(b"234"), **whole}
    assert checked == (206, shown, b"234")


@pytest.mark.parametrize(
    ("name", "span", "headers", "expected"),
    [
        ("gone", "0-1", {}, (404, "BlobNotFound")),
        ("a", "0-1", {"If_Match": '"0x1"'}, (412, "ConditionNotMet")),
        ("a", "11-12", {}, (416, "InvalidRange")),
        ("empty", "0-1", {}, (416, "InvalidRange")),
    ],
)
def test_a_range_is_refused_in_azures_words(asking, name, span, headers, expected):
    (status, shown, _), _ = asking(name, span, **headers)
    assert (status, shown["x-ms-error-code"]) == expected
