"""One contract for raw requests: the store behind HTTP answers Azure's protocol as Azurite does.

What the product's own client asks for is in test_blob_stores.py; here each request is written by hand, as
whoever else writes to a store may send it. Azurite judges; `http` is the stand-in.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from azure.storage.blob import generate_container_sas

from infra.local.azurite_server import KEY_FILE
from jobs.contracts.spec import Environment
from tests.busy import HANG_S
from tests.fakes.http_blobs import http_blobs, md5_of

FIRST, SECOND = (b64encode(each).decode() for each in (b"block-1", b"block-2"))
CREATED, MISSING = (201, None), (404, "BlobNotFound")


@dataclass(frozen=True)
class Said:
    """An answer; `code` is Azure's own of an error."""

    status: int
    code: str | None
    headers: dict[str, str]
    body: bytes

    @property
    def short(self) -> tuple[int, str | None]:
        return self.status, self.code


@dataclass(frozen=True)
class Store:
    """A container; `proof` is a query that opens it to whoever reads, writes and lists."""

    url: str
    proof: str
    is_azurite: bool = False

    def ask(
        self, method: str, name: str, query: str = "", body: bytes | None = None, **headers: str
    ) -> Said:
        fields = {"x-ms-version": "2021-12-02", "Content-Type": "application/octet-stream"}
        fields |= {key.replace("_", "-"): value for key, value in headers.items()}
        url = f"{self.url}/{name}?{'&'.join(part for part in (query, self.proof) if part)}"
        asked = Request(url, data=body, headers=fields, method=method)
        try:
            answer = urlopen(asked, timeout=HANG_S)
        except HTTPError as error:
            answer = error
        with answer:
            told = {key.lower(): value for key, value in answer.headers.items()}
            return Said(answer.status, told.get("x-ms-error-code"), told, answer.read())

    def put(self, name: str, content: bytes, **headers: str) -> Said:
        return self.ask("PUT", name, "", content, x_ms_blob_type="BlockBlob", **headers)

    def stage(self, name: str, block: str, content: bytes, **headers: str) -> Said:
        return self.ask("PUT", name, f"comp=block&blockid={quoted(block)}", content, **headers)

    def commit(self, name: str, *blocks: str, **headers: str) -> Said:
        latest = "".join(f"<Latest>{each}</Latest>" for each in blocks)
        body = f"<?xml version='1.0' encoding='utf-8'?><BlockList>{latest}</BlockList>".encode()
        return self.ask("PUT", name, "comp=blocklist", body, **headers)

    def staged(self, name: str) -> tuple[tuple[int, str | None], list[str]]:
        """The answer, and the ids of blocks that are no part of the blob yet."""
        said = self.ask("GET", name, "comp=blocklist&blocklisttype=uncommitted")
        return said.short, sorted(re.findall("<Name>([^<]+)</Name>", said.body.decode()))

    def content(self, name: str) -> bytes | None:
        said = self.ask("GET", name)
        return said.body if said.status == 200 else None


def quoted(block: str) -> str:
    return block.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")


@pytest.fixture(params=["http", "azurite"])
def stores(request: pytest.FixtureRequest) -> Iterator[Callable[[], Store]]:
    """Opens empty stores: two containers of Azurite, in turn, or a server each."""
    with ExitStack() as opened:
        names = iter(("data", "runs"))

        def open_store() -> Store:
            if request.param == "http":
                return Store(opened.enter_context(http_blobs()).url, "")
            return azurites(request.getfixturevalue("judge"), next(names), opened)

        yield open_store


def azurites(environment: Environment, container: str, opened: ExitStack) -> Store:
    storage = environment.storage
    ends = datetime.now(UTC) + timedelta(hours=1)
    key = (Path(storage.folder or "") / KEY_FILE).read_text()
    sas = generate_container_sas(
        storage.account, container, account_key=key, permission="racwdl", expiry=ends
    )
    store = Store(f"{storage.blob_endpoint}/{container}", sas, is_azurite=True)
    opened.callback(empty, store)
    return store


def empty(store: Store) -> None:
    listed = store.ask("GET", "", "restype=container&comp=list&include=uncommittedblobs").body
    for name in re.findall("<Name>([^<]+)</Name>", listed.decode()):
        if store.ask("DELETE", name).status == 404:  # nothing but blocks
            assert store.put(name, b"").status == 201
            assert store.ask("DELETE", name).status == 202


@pytest.fixture
def store(stores: Callable[[], Store]) -> Store:
    return stores()


# --- Blocks ---------------------------------------------------------------------------------------


def test_blocks_are_staged_listed_and_committed_in_the_order_of_the_list(store):
    assert store.staged("a") == (MISSING, [])
    assert store.stage("a", FIRST, b"01").short == CREATED
    assert store.stage("a", SECOND, b"23", Content_MD5=md5_of(b"23")).short == CREATED
    assert store.staged("a") == ((200, None), [FIRST, SECOND])
    assert store.content("a") is None
    committed = store.commit("a", SECOND, FIRST, x_ms_blob_content_md5=md5_of(b"2301"))
    assert committed.short == CREATED
    assert store.content("a") == b"2301"
    assert store.staged("a") == ((200, None), [])


def test_a_block_that_is_staged_again_is_the_later_one(store):
    for content in (b"old", b"new"):
        assert store.stage("a", FIRST, content).short == CREATED
    assert store.staged("a") == ((200, None), [FIRST])
    assert store.commit("a", FIRST).short == CREATED
    assert store.content("a") == b"new"


def test_a_list_with_an_id_that_is_not_staged_changes_nothing(store):
    assert store.put("a", b"kept").short == CREATED
    assert store.stage("a", FIRST, b"01").short == CREATED
    assert store.commit("a", FIRST, SECOND).short == (400, "InvalidBlockList")
    assert store.content("a") == b"kept"
    assert store.staged("a") == ((200, None), [FIRST])


def test_a_blob_that_is_written_whole_is_so_whatever_was_staged(store):
    """Azure forgets the blocks then (rest/api/storageservices/put-block); Azurite 3.35 keeps them."""
    assert store.stage("a", FIRST, b"01").short == CREATED
    assert store.put("a", b"whole").short == CREATED
    assert store.content("a") == b"whole"
    assert store.staged("a") == ((200, None), [FIRST] if store.is_azurite else [])
    committed = store.commit("a", FIRST)
    assert committed.short == (CREATED if store.is_azurite else (400, "InvalidBlockList"))


def test_what_is_committed_forgets_blocks_that_the_list_leaves_out(store):
    for block, content in ((FIRST, b"01"), (SECOND, b"23")):
        assert store.stage("a", block, content).short == CREATED
    assert store.commit("a", FIRST).short == CREATED
    assert store.staged("a") == ((200, None), [])
    assert store.commit("a", SECOND).short == (400, "InvalidBlockList")
    assert store.content("a") == b"01"


# --- MD5s and versions ----------------------------------------------------------------------------


def test_content_with_another_md5_is_refused_and_changes_nothing(store):
    """In Azure's word for it; Azurite has one of its own, and compares no list of blocks."""
    wrong = md5_of(b"other")
    refused = (400, "InvalidOperation" if store.is_azurite else "Md5Mismatch")
    assert store.stage("b", FIRST, b"01", Content_MD5=wrong).short == refused
    assert store.staged("b") == (MISSING, [])
    assert store.put("a", b"0123", Content_MD5=wrong).short == refused
    assert store.stage("b", FIRST, b"01").short == CREATED
    committed = store.commit("b", FIRST, Content_MD5=wrong).short
    assert committed == (CREATED if store.is_azurite else refused)
    assert store.content("a") is None


def test_a_whole_blob_is_given_with_its_version_and_md5(store):
    made = store.put("a", b"0123")
    read = store.ask("GET", "a")
    assert read.short == (200, None)
    assert read.headers["content-md5"] == md5_of(b"0123")
    assert read.headers["etag"] == made.headers["etag"]
    assert store.put("a", b"0123").headers["etag"] != made.headers["etag"]
    assert store.ask("GET", "a", If_Match=made.headers["etag"]).short == (412, "ConditionNotMet")


@pytest.mark.parametrize("content", [b"01", b"other"])
def test_a_committed_blob_has_the_md5_that_the_list_was_sent_with(store, content):
    assert store.stage("a", FIRST, b"01").short == CREATED
    made = store.commit("a", FIRST, x_ms_blob_content_md5=md5_of(content))
    read = store.ask("GET", "a")
    assert (read.body, read.headers["content-md5"]) == (b"01", md5_of(content))
    assert read.headers["etag"] == made.headers["etag"]


def test_what_is_to_be_new_is_not_written_over(store):
    assert store.put("a", b"first", If_None_Match="*").short == CREATED
    assert store.put("a", b"second", If_None_Match="*").short == (409, "BlobAlreadyExists")
    assert store.content("a") == b"first"


# --- Copies and deletions -------------------------------------------------------------------------


def test_a_copy_is_another_version_with_the_md5_of_its_source(store):
    assert store.put("a", b"0123").short == CREATED
    made = store.ask("PUT", "b", body=b"", x_ms_copy_source=f"{store.url}/a?{store.proof}")
    assert (made.short, made.headers["x-ms-copy-status"]) == ((202, None), "success")
    read = store.ask("GET", "b")
    assert (read.body, read.headers["content-md5"]) == (b"0123", md5_of(b"0123"))
    assert read.headers["etag"] not in {"", store.ask("GET", "a").headers["etag"]}


def test_a_copy_from_another_store_has_the_content_and_md5_of_its_source(stores):
    store, other = stores(), stores()
    assert other.put("a", b"0123").short == CREATED
    made = store.ask("PUT", "b", body=b"", x_ms_copy_source=f"{other.url}/a?{other.proof}")
    assert (made.short, made.headers["x-ms-copy-status"]) == ((202, None), "success")
    read = store.ask("GET", "b")
    assert (read.body, read.headers["content-md5"]) == (b"0123", md5_of(b"0123"))
    assert read.headers["etag"] == made.headers["etag"]


def test_a_copy_of_what_is_gone_writes_nothing(stores):
    store, other = stores(), stores()
    for source in (store, other):
        gone = f"{source.url}/gone?{source.proof}"
        said = store.ask("PUT", "b", body=b"", x_ms_copy_source=gone)
        assert said.short == (404, "CannotVerifyCopySource")
    assert store.content("b") is None


def test_a_blob_is_deleted_once(store):
    assert store.put("a", b"0").short == CREATED
    assert store.ask("DELETE", "a").status == 202
    assert store.ask("DELETE", "a").short == MISSING
