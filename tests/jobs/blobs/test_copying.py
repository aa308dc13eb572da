"""Blobs copied inside a store over real HTTP: whole, pending, gone, refused, with each proof."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator

import pytest

from jobs.blobs import copying, session
from jobs.blobs.authority import SasFile, SharedKey
from jobs.blobs.azure_store import AzureStore
from jobs.blobs.concurrency import NUM_REQUESTS
from jobs.blobs.container import Container
from jobs.blobs.copying import Copying
from jobs.blobs.files import Origin, Tally
from jobs.blobs.refusals import StoreError
from jobs.blobs.store import Copy
from jobs.contracts.errors import EnvironmentFailure
from tests.fakes.http_blobs import HttpBlobs, http_blobs, md5_of
from tests.fakes.scripted_server import CLOSE, Asked, answer

PATHS = ("empty", "sub/ü #%?&+日本", "z")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(session, "_BACKOFF_S", 0.001)
    monkeypatch.setattr(copying, "_FIRST_LOOK_S", 0.001)


@pytest.fixture
def blobs() -> Iterator[HttpBlobs]:
    with http_blobs() as made:
        for path in PATHS:
            made.blobs[f"old/{path}"] = path.encode() if path != "empty" else b""
            made.md5s[f"old/{path}"] = md5_of(made.blobs[f"old/{path}"])
        yield made


def explain(error: StoreError) -> EnvironmentFailure:
    return EnvironmentFailure(f"{error.status} {error.code or error.text}")


def copy(blobs: HttpBlobs, *, authority=None) -> tuple[int, int]:
    """Copy all of old/ to new/; how many files and bytes were made."""
    given = authority or SharedKey("account", "a2V5")
    store = AzureStore(Container(blobs.url, given), explain)
    made = [0, 0]

    def moved(files: int, num_bytes: int, _num_found: int = 0) -> None:
        made[0] += files
        made[1] += num_bytes

    old = {name: blobs.blobs[name] for name in sorted(blobs.blobs)}
    store.copy(
        (Copy(source=n, name=f"new/{n[4:]}", bytes=len(content)) for n, content in old.items()),
        moved,
    )
    return made[0], made[1]


def test_blobs_are_copied_with_their_md5_and_no_byte_comes_here(blobs):
    assert copy(blobs) == (3, sum(len(blobs.blobs[f"old/{path}"]) for path in PATHS))
    for path in PATHS:
        assert blobs.blobs[f"new/{path}"] == blobs.blobs[f"old/{path}"]
        assert blobs.md5s[f"new/{path}"] == blobs.md5s[f"old/{path}"]
    assert blobs.asked == {"PUT blob": 3}


def test_one_that_goes_on_is_waited_for(blobs):
    said = iter(["pending", "pending", "success"])

    def hook(kind: str, asked: Asked) -> bytes | None:
        if kind == "HEAD blob":
            assert asked.target.endswith("/new/z")
            return answer(200, x_ms_copy_status=next(said))
        return answer(202, x_ms_copy_status="pending") if "/new/z" in asked.target else None

    blobs.hook = hook
    assert copy(blobs)[0] == 3
    assert blobs.asked == {"PUT blob": 3, "HEAD blob": 3}


def test_one_that_an_earlier_try_began_is_waited_for(blobs):
    def hook(kind: str, asked: Asked) -> bytes | None:
        if kind == "HEAD blob":
            return answer(200, x_ms_copy_status="success")
        is_it = "/new/z" in asked.target
        return answer(409, x_ms_error_code="PendingCopyOperation") if is_it else None

    blobs.hook = hook
    assert copy(blobs)[0] == 3


@pytest.mark.parametrize("status", ["failed", "aborted"])
def test_one_that_fails_is_not_counted(blobs, status):
    blobs.hook = lambda _kind, asked: (
        answer(202, x_ms_copy_status=status) if "/new/z" in asked.target else None
    )
    assert copy(blobs)[0] == 2


def test_one_that_is_gone_is_left_out(blobs):
    blobs.hook = lambda _kind, asked: (
        answer(404, x_ms_error_code="BlobNotFound") if "/new/empty" in asked.target else None
    )
    assert copy(blobs)[0] == 2


@pytest.mark.parametrize(
    "refusal",
    [
        answer(403, x_ms_error_code="AuthorizationPermissionMismatch"),
        answer(501, x_ms_error_code="NotImplemented"),
        answer(500, x_ms_error_code="InternalError"),
    ],
    ids=["403", "501", "500"],
)
def test_a_store_that_refuses_is_not_asked_for_ever(blobs, refusal):
    for number in range(2000):
        blobs.blobs[f"old/more/{number}"] = b""
        blobs.md5s[f"old/more/{number}"] = md5_of(b"")
    asked_for: set[str] = set()

    def hook(_kind: str, asked: Asked) -> bytes:
        asked_for.add(asked.target)
        return refusal

    blobs.hook = hook
    assert copy(blobs) == (0, 0)
    assert len(asked_for) <= NUM_REQUESTS


def test_an_answer_that_is_lost_is_asked_for_again(blobs):
    lost: list[str] = []

    def hook(_kind: str, asked: Asked) -> bytes | None:
        if asked.target in lost:
            return None
        lost.append(asked.target)
        return CLOSE

    blobs.hook = hook
    assert copy(blobs)[0] == 3


def test_a_store_that_is_gone_is_said(blobs, monkeypatch):
    monkeypatch.setattr(session, "TRANSFER_TRIES", 3)
    blobs.hook = lambda _kind, _asked: CLOSE
    with pytest.raises(EnvironmentFailure, match="None"):
        copy(blobs)


def test_azurite_gets_no_sas_in_the_source(blobs, tmp_path):
    """It keeps the source's URL, where each reader of the copy would see the SAS."""
    (tmp_path / "sas").write_text("sv=1&sig=secret", encoding="utf-8")
    seen: list[str] = []

    def hook(_kind: str, asked: Asked) -> None:
        assert asked.target.endswith("?sv=1&sig=secret")
        seen.append(asked.headers["x-ms-copy-source"])

    blobs.hook = hook
    assert copy(blobs, authority=SasFile(tmp_path / "sas"))[0] == 3
    assert ["sig" in source for source in seen] == [False] * 3


def test_on_azure_a_sas_goes_with_a_request_that_keeps_no_source(tmp_path):
    (tmp_path / "sas").write_text("sv=1&sig=secret", encoding="utf-8")
    asked: list[tuple[str, str]] = []

    class Client:
        def get_blob_client(self, name: str):
            self.name = name
            return self

        async def upload_blob_from_url(self, source: str, *, overwrite: bool):
            assert overwrite
            asked.append((self.name, source))

    class Recorded:
        client = Client()

        async def ask(self, request, *, accept=()):
            return await request()

    store = Container("https://a.blob.core.windows.net/data", SasFile(tmp_path / "sas"))
    made: list[tuple[int, int]] = []
    tally = Tally(lambda files, num_bytes, _num_found=0: made.append((files, num_bytes)))
    copies = [Copy(source="o/ü", name="n/ü", bytes=5)]
    job = Copying(Recorded(), store, copies, tally).next_job()  # type: ignore[arg-type]
    assert job is not None
    asyncio.run(job())
    tally.tell()
    source = "https://a.blob.core.windows.net/data/o/%C3%BC?sv=1&sig=secret"
    assert (made, asked) == ([(1, 5)], [("n/ü", source)])


def test_from_another_store_the_service_copies_what_has_the_md5(blobs):
    """Real requests of the SDK: Put Blob From URL, with the SAS and the MD5 of the source."""
    theirs = Origin(url="https://b.blob.core.windows.net/data", sas="sv=1&sig=secret")
    seen: list[dict[str, str]] = []

    def hook(kind: str, asked: Asked) -> bytes:
        names = ("x-ms-copy-source", "x-ms-source-content-md5", "x-ms-blob-type")
        seen.append({"kind": kind, **{name: asked.headers.get(name, "") for name in names}})
        return answer(201)

    blobs.hook = hook
    ours = Container(blobs.url, SharedKey("account", "a2V5"))
    ours.is_loopback = False  # as one on Azure
    store = AzureStore(ours, explain)
    md5 = hashlib.md5(b"abc", usedforsecurity=False).digest()
    made: list[tuple[int, int]] = []
    store.copy(
        [Copy(source="o/ü", name="n/ü", bytes=3, md5=md5)],
        lambda files, num_bytes, _num_found=0: made.append((files, num_bytes)),
        origin=theirs,
    )
    assert made == [(1, 3)]
    assert seen == [
        {
            "kind": "PUT blob",
            "x-ms-copy-source": f"{theirs.url}/o/%C3%BC?{theirs.sas}",
            "x-ms-source-content-md5": md5_of(b"abc"),
            "x-ms-blob-type": "BlockBlob",
        }
    ]


def test_no_service_copies_between_azure_and_this_machine(blobs):
    store = AzureStore(Container(blobs.url, SharedKey("account", "a2V5")), explain)
    origin = Origin(url="https://b.blob.core.windows.net/data", sas="sig=secret")
    store.copy([Copy(source="a", name="b", bytes=1)], lambda *_: None, origin=origin)
    assert (store.as_origin(60), blobs.asked) == (None, {})
