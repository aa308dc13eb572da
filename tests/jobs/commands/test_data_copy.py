"""What `launch data copy` prints; both stores are in memory."""

from __future__ import annotations

import msgspec
import pytest

from jobs.datasets import datasets as data
from tests.fakes.blob_store import MemoryStore
from tests.fakes.gangs import make_environment
from tests.folders import make_folder

pytestmark = pytest.mark.usefixtures("own_cache")

SIZES = {"files_sent": 2, "bytes_sent": 7, "files_copied": 0, "bytes_copied": 0}


@pytest.fixture
def stores(launching, monkeypatch) -> dict[str, MemoryStore]:
    """The stores of the stack at hand and of another, `test`, that has a file."""
    other = make_environment(launching.folder / "test-workspace")
    other = msgspec.structs.replace(other, stack="test")
    (launching.folder / "test.json").write_bytes(msgspec.json.encode(other))
    made = {"local": MemoryStore(), "test": MemoryStore()}
    monkeypatch.setattr(data, "open_data_store", lambda each, **_: made[each.stack])
    monkeypatch.chdir(launching.folder)
    make_folder(launching.folder / "digits", {"a": b"one", "b": b"four"})
    assert launching.type("data", "push", "digits", "d").out == "d@1\n"
    return made


def test_copy_says_what_the_version_is_called_there(launching, stores):
    digest = data.Datasets(stores["local"]).resolve("d").digest
    make_folder(launching.folder / "older", {"a": b"old"})
    data.Datasets(stores["test"]).push(launching.folder / "older", "d")
    dry = launching.type("data", "copy", "d", "--to", "test.json", "--dry-run")
    assert (dry.code, dry.out) == (0, "")
    assert dry.err == "would copy 2 of 2 files (7 B) of d@1 of stack local to stack test as d@2\n"
    typed = launching.type("data", "copy", "d@1", "--to", "test.json")
    assert (typed.code, typed.out) == (0, "d@2\n")
    told = f"d@1 of stack local is d@2 of stack test: 2 files, 7 B, digest {digest[:12]}\n"
    assert typed.err.endswith(told)
    again = launching.type("data", "copy", "d", "--to", "test.json")
    assert again.out == "d@2\n"
    assert again.err == "stack test has the content of d@1 of stack local already, as d@2\n"
    shown = launching.type_bare("data", "show", "d@2", "--env", "test.json")
    url = launching.environment.storage.blob_endpoint.rstrip("/")
    assert f"copied from  d@1 of local ({url})" in shown.out


def test_json_has_stack_version_and_origin(launching, stores):
    found = launching.type("data", "copy", "d", "--to", "test.json", "--json").json()
    storage = launching.environment.storage.blob_endpoint.rstrip("/")
    record = data.Datasets(stores["test"]).resolve("d@1")
    assert found == {
        "name": "d",
        "version": 1,
        "digest": record.digest,
        "files": 2,
        "bytes": 7,
        "created": record.created,
        "copied_from": {"stack": "local", "store": storage, "version": 1},
        "already": False,
        **SIZES,
        "stack": "test",
    }


def test_a_version_or_stack_that_is_not_there_is_named(launching, stores):
    typed = launching.type("data", "copy", "d@7", "--to", "test.json")
    assert typed.code == 102
    assert "no dataset `d@7`" in typed.err
    typed = launching.type("data", "copy", "d", "--to", "nowhere.json")
    assert typed.code == 2
    assert "nowhere.json" in typed.err


def test_what_was_copied_is_made_known_to_the_target(launching, stores, monkeypatch):
    """On Azure, as a data asset."""
    made = []
    monkeypatch.setattr(
        "jobs.commands.data_options.register_dataset",
        lambda record, environment: made.append((record.version, environment.stack)),
    )
    assert launching.type("data", "copy", "d", "--to", "test.json", "--dry-run").code == 0
    assert made == []
    assert launching.type("data", "copy", "d", "--to", "test.json").code == 0
    assert made == [(1, "test")]
