"""`launch data` against a real Azurite: the layout, races, a dead store, errors."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest
from azure.storage.blob import BlobClient, generate_container_sas
from azure.storage.blob.aio import BlobClient as AsyncBlobClient

from infra.local import azurite_server
from jobs.blobs.store import BLOCK_BYTES, open_data_store
from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import Storage
from tests import seeds
from tests.fakes.gangs import make_environment
from tests.fakes.launched_store import Store
from tests.fakes.local_server import name_server
from tests.fakes.own_stack import lay_own_stack
from tests.fakes.typed_launch import launch
from tests.faults.transfer_campaign import outgoing
from tests.folders import make_folder, read_folder
from tests.ports import free_port

REPO = Path(__file__).parents[2]


def store_at(folder: Path, port: int) -> Store:
    environment = msgspec.structs.replace(
        make_environment(folder / "workspace"),
        storage=Storage(
            account="trainyard",
            blob_endpoint=f"http://127.0.0.1:{port}/trainyard",
            containers=make_environment(folder).storage.containers,
            folder=str(folder / "storage"),
        ),
    )
    (folder / "environment.json").write_bytes(msgspec.json.encode(environment))
    return Store(folder, environment, folder / "environment.json")


def test_a_folder_goes_up_and_comes_back_equal(store, tmp_path):
    contents = {
        "empty": b"",
        "large": seeds.content(20_000_001),  # three blocks
        "sub/ü 日本": b"1",
        "sub/100%25?#+&=~;,'()[]": b"2",
        "sub/..x/-y": b"3",
        **{f"many/{number:03}": str(number).encode() for number in range(100)},
    }
    folder = make_folder(tmp_path / "from", contents)
    pushed = store.json("data", "push", str(folder), "round")
    total = sum(map(len, contents.values()))
    expected = {"name": "round", "version": 1, "files": 105, "bytes": total}
    assert {key: pushed[key] for key in expected} == expected
    assert (pushed["already"], pushed["files_sent"], pushed["bytes_sent"]) == (False, 105, total)

    again = store.json("data", "push", str(folder), "round")
    same = ("version", "digest", "created")
    assert [again[key] for key in same] == [pushed[key] for key in same]
    assert (again["already"], again["files_sent"], again["bytes_sent"]) == (True, 0, 0)

    pulled = store.json("data", "pull", "round@1", "--to", str(tmp_path / "to"))
    assert (pulled["files_received"], pulled["bytes_received"]) == (105, total)
    assert read_folder(tmp_path / "to") == contents

    sizes = {
        blob.name.removeprefix(f"round/{pushed['digest']}/"): blob.bytes
        for blob in open_data_store(store.environment).list(f"round/{pushed['digest']}/")
    }
    assert sizes == {name: len(content) for name, content in contents.items()}


@pytest.mark.parametrize("proof", ["key", "sas"])
def test_a_new_version_is_copied_but_for_what_is_new(store, tmp_path, proof):
    name, words = f"copied-{proof}", list[str]()
    if proof == "sas":
        key = Path(store.environment.storage.folder, "account.key").read_text().strip()
        sas = generate_container_sas(
            "trainyard", "data", account_key=key, permission="rcwdl", expiry="2100-01-01T00:00:00Z"
        )
        (tmp_path / "sas").touch(mode=0o600)
        (tmp_path / "sas").write_text(sas)
        words = ["--sas", str(tmp_path / "sas")]
    contents = {f"many/{number:02} ü#%": str(number).encode() for number in range(49)}
    contents["large"] = seeds.content(20_000_001)  # three blocks
    folder = make_folder(tmp_path / "from", contents)
    store.json("data", "push", str(folder), name, *words)
    (folder / "added").write_bytes(b"one more")
    dry = store.json("data", "push", str(folder), name, "--dry-run", *words)
    done = store.launch("data", "push", str(folder), name, "--json", *words)
    pushed = json.loads(done.stdout)
    # The copies came with their MD5s: no second round sends them.
    sending = [line for line in done.stderr.splitlines() if line.startswith("sending")]
    assert sending[-1].startswith("sending 1/1 files"), sending
    for each in (dry, pushed):
        assert (each["version"], each["files_sent"], each["bytes_sent"]) == (2, 1, 8)
        assert (each["files_copied"], each["bytes_copied"]) == (50, each["bytes"] - 8)

    assert store.launch("data", "rm", f"{name}@1", "--yes").returncode == 0
    store.json("data", "pull", f"{name}@2", "--to", str(tmp_path / "to"), *words)
    assert read_folder(tmp_path / "to") == {**contents, "added": b"one more"}


def test_a_real_store_tells_which_blocks_it_has_and_takes_the_rest(store, tmp_path, monkeypatch):
    path = make_folder(tmp_path, {"large": seeds.content(3 * BLOCK_BYTES + 1)}) / "large"
    made = open_data_store(store.environment)
    blocks: list[str] = []
    stage = AsyncBlobClient.stage_block

    def counting(self, block_id: str, *rest, **options):
        blocks.append(block_id)
        return stage(self, block_id, *rest, **options)

    def interrupt(_files: int, count: int, _found: int) -> None:
        if count:
            raise KeyboardInterrupt

    async def first_alone(self, block_id: str, *rest, **options):
        if blocks:
            await asyncio.Event().wait()  # until the interrupt cancels it
        blocks.append(block_id)
        return await stage(self, block_id, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(AsyncBlobClient, "stage_block", first_alone)
        with pytest.raises(KeyboardInterrupt):
            made.send([outgoing(path, "resumed")], interrupt)
    blocks.clear()
    assert made.read("resumed") is None
    client = BlobClient(
        store.environment.storage.blob_endpoint,
        "data",
        "resumed",
        credential={"account_name": "trainyard", "account_key": account_key(store)},
    )
    with client:
        there = client.get_block_list("uncommitted")[1]
        monkeypatch.setattr(AsyncBlobClient, "stage_block", counting)
        made.send([outgoing(path, "resumed")], lambda *_: None)
        assert len(there) == 1
        assert len(blocks) == 3
        assert client.download_blob().readall() == path.read_bytes()
        kept = client.get_blob_properties().content_settings.content_md5
        assert bytes(kept) == hashlib.md5(path.read_bytes()).digest()
    made.delete(["resumed"])


def test_a_read_only_sas_reads_and_lists_and_nothing_else(store, tmp_path):
    made = open_data_store(store.environment)
    assert made.create("sas/a", b"content")
    file = tmp_path / "sas"
    file.touch(mode=0o600)
    file.write_text(made.read_only_sas("sas/", 60))
    given = open_data_store(store.environment, sas_file=file)
    assert ([blob.name for blob in given.list("sas/")], given.read("sas/a")) == (
        ["sas/a"],
        b"content",
    )
    for forbidden in (lambda: given.create("sas/b", b""), lambda: given.delete(["sas/a"])):
        with pytest.raises(
            EnvironmentFailure, match="refuses access: AuthorizationPermissionMismatch"
        ):
            forbidden()
    made.delete(["sas/a"])
    assert list(made.list("sas/")) == []


def account_key(store: Store) -> str:
    return Path(store.environment.storage.folder or "", "account.key").read_text().strip()


def test_what_people_see_of_it(store, tmp_path):
    folder = make_folder(tmp_path / "from", {"a": b"content"})
    done = store.launch("data", "push", str(folder), "seen")
    assert (done.returncode, done.stdout) == (0, "seen@1\n")
    assert "sending 1/1 files, 7 B of 7 B (100%)" in done.stderr
    done = store.launch("data", "push", str(folder), "seen")
    assert (done.stdout, done.stderr) == (
        "seen@1\n",
        "the store has this content already, as seen@1\n",
    )
    done = store.launch("data", "ls", "seen")
    assert done.stdout.splitlines()[0].split() == [
        *("NAME", "VERSION", "FILES", "SIZE", "CREATED", "(UTC)", "DIGEST")
    ]
    assert done.stdout.splitlines()[1].split()[:5] == ["seen", "1", "1", "7", "B"]
    done = store.launch("data", "ls", "unseen")
    assert (done.returncode, done.stdout) == (102, "")
    assert "hint: there is " in done.stderr


def test_pushes_of_several_processes_at_once_get_versions_of_their_own(store, tmp_path):
    folders = [
        make_folder(tmp_path / str(number), {"a": str(number % 5).encode()}) for number in range(8)
    ]
    with ThreadPoolExecutor(8) as pool:
        pushed = list(
            pool.map(lambda folder: store.json("data", "push", str(folder), "race"), folders)
        )
    by_digest: dict[str, set[int]] = {}
    for each in pushed:
        by_digest.setdefault(each["digest"], set()).add(each["version"])
    assert sorted(map(len, by_digest.values())) == [1] * 5
    assert sorted(version for versions in by_digest.values() for version in versions) == [
        *range(1, 6)
    ]
    assert [each["version"] for each in store.json("data", "ls", "race")] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("end", ["stopped", pytest.param("killed", marks=pytest.mark.faults)])
def test_a_dead_store_is_started_again_by_the_next_command(store, tmp_path, end):
    name = f"survivor-{end}"
    store.json("data", "push", str(make_folder(tmp_path / "from", {"a": b"x"})), name)
    folder = Path(store.environment.storage.folder)
    # An orderly end: after a kill Azurite forgets the last 5 s, by its own design.
    assert azurite_server.stop(folder)
    if end == "killed":
        assert [each["version"] for each in store.json("data", "ls", name)] == [1]
        server = azurite_server.read_server(folder)
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
    pulled = store.json("data", "pull", name, "--to", str(tmp_path / "to"))
    assert (pulled["files_received"], read_folder(tmp_path / "to")) == (1, {"a": b"x"})


def test_a_store_that_cannot_be_started_is_one_message_with_a_hint(tmp_path):
    never_up = store_at(tmp_path, free_port())
    (tmp_path / "storage").mkdir()
    tools = {"node": "/none", "azurite": "/none"}
    lay_own_stack(tmp_path, msgspec.to_builtins(never_up.environment), tools)
    done = never_up.launch("data", "ls")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the local store is down and cannot be started: ")
    assert "hint: for the owner of the stack: launch env repair -s local" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_key_is_named(store, tmp_path):
    port = int(store.environment.storage.blob_endpoint.split(":")[2].split("/")[0])
    other = store_at(tmp_path, port)
    (tmp_path / "storage").mkdir()
    shutil.copy(store.folder / "storage" / "server.json", tmp_path / "storage")
    done = other.launch("data", "ls")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: the store's key `{tmp_path}/storage/account.key` cannot be read" in done.stderr
    assert "hint: for the owner of the stack: pulumi up -s local" in done.stderr


@pytest.mark.parametrize(
    ("status", "code", "message", "hint"),
    [
        (
            403,
            "AuthorizationFailure",
            "the store .* refuses access: AuthorizationFailure",
            "env check",
        ),
        (
            403,
            "AuthenticationFailed",
            "the store .* refuses access: AuthenticationFailed",
            "env check",
        ),
        (404, "ContainerNotFound", "has no container `data`", "pulumi up -s local"),
        (409, "AccountBeingCreated", "answered 409: AccountBeingCreated", "env check"),
    ],
)
def test_what_a_store_answers_is_said_in_our_words(tmp_path, status, code, message, hint):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode()
            self.send_response(status)
            self.send_header("x-ms-error-code", code)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made = store_at(tmp_path, server.server_port)
        (tmp_path / "storage").mkdir()
        (tmp_path / "storage" / "account.key").write_text("a2V5")
        name_server(tmp_path / "storage")
        with pytest.raises(EnvironmentFailure, match=message) as error:
            list(open_data_store(made.environment).list(""))
        server.shutdown()
    assert hint in error.value.hint


def test_prepare_writes_a_folder_that_push_takes(store, tmp_path):
    words = ("data", "prepare")
    prepared = launch(tmp_path, *words, "digits", "--to", str(tmp_path / "digits"), "--json")
    assert prepared.returncode == 0, prepared.stderr
    event = json.loads(prepared.stdout.splitlines()[-1])
    assert (event["train"], event["test"], event["changed"]) == (1442, 355, True)
    assert store.json("data", "push", event["folder"], "digits")["files"] == 4
    refused = launch(tmp_path, *words, "cifar", "--to", str(tmp_path / "x"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "error: argument NAME: invalid choice: 'cifar'" in refused.stderr
