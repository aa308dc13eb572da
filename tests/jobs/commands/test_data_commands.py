"""What `launch data` prints and asks; the store is in memory."""

from __future__ import annotations

import io
import os
import sys
from types import SimpleNamespace

import msgspec
import pytest

from jobs.commands.completers import dataset_versions
from jobs.commands.quantities import bytes_per_s
from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import DatasetVersion, InputSpec
from jobs.datasets import datasets as data
from jobs.host.progress import ProgressLine, Transfer
from jobs.runs.store import RunStore
from jobs.runs.supervision import take_lock
from tests.fakes.blob_store import MemoryStore
from tests.folders import make_folder, read_folder

pytestmark = pytest.mark.usefixtures("own_cache")

KEYS = ["name", "version", "digest", "files", "bytes", "created"]


@pytest.fixture
def opened() -> list:
    """The SAS file that each command opened the store with."""
    return []


@pytest.fixture
def store(monkeypatch, opened) -> MemoryStore:
    made = MemoryStore()

    def open_store(environment, *, sas_file=None):
        opened.append(sas_file)
        return made

    monkeypatch.setattr(data, "open_data_store", open_store)
    monkeypatch.setattr("jobs.blobs.store.peek_data_store", lambda _: made)
    return made


@pytest.fixture
def folder(launching, store):
    folder = make_folder(launching.folder / "digits", {"a": b"one", "sub/b": b"", "sub/c": b"5555"})
    typed = launching.type("data", "push", "digits", "d")
    assert (typed.code, typed.out) == (0, "d@1\n")
    return folder


def test_push_says_what_it_did(launching, store, folder):
    (folder / "a").write_bytes(b"two!")
    dry = launching.type("data", "push", "digits", "d", "--dry-run")
    assert dry.out == ""
    assert dry.err == (
        "would send 1 of 3 files (4 B of 8 B) as d@2, and copy 2 files (4 B) inside the store\n"
    )
    assert [name for name in store.blobs if name.startswith("_datasets/d/2")] == []
    typed = launching.type("data", "push", "digits", "d", "--limit-rate", "20M")
    assert (typed.code, typed.out, store.max_bytes_per_s) == (0, "d@2\n", None)
    assert "d@2: 3 files, 8 B, digest " in typed.err
    assert typed.err.endswith(", copied 2 files (4 B) inside the store\n")
    again = launching.type("data", "push", "digits", "d", "--json")
    assert list(again.json()) == [
        *KEYS,
        "already",
        "files_sent",
        "bytes_sent",
        "files_copied",
        "bytes_copied",
    ]
    assert (again.json()["already"], again.json()["version"]) == (True, 2)


def test_one_file_is_called_one_file(launching, store):
    make_folder(launching.folder / "one", {"a": b"one"})
    store.blobs["raw/p/b"] = b"two"
    dry = launching.type("data", "push", "one", "d", "--dry-run")
    assert dry.err == "would send 1 of 1 file (3 B of 3 B) as d@1\n"
    assert "d@1: 1 file, 3 B, digest " in launching.type("data", "push", "one", "d").err
    assert "p@1: 1 file, 3 B, left in place" in launching.type("data", "register", "p", "raw/p").err
    assert "d@1: 1 file, 3 B, pushed " in launching.type("data", "rm", "d@1", "--yes").err


def test_ctrl_c_says_that_the_same_command_goes_on(launching, store, folder, monkeypatch):
    said = "interrupted: type the same again to continue\n"
    (folder / "a").write_bytes(b"two!")
    store.kill_before_write(1, KeyboardInterrupt)
    typed = launching.type("data", "push", "digits", "d")
    assert (typed.code, typed.out, typed.err) == (130, "", said)
    store.kill_before_write(None, KeyboardInterrupt)

    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "receive", interrupt)
    typed = launching.type("data", "pull", "d", "--to", "to")
    assert (typed.code, typed.out, typed.err) == (130, "", said)


def test_a_record_that_cannot_be_read_does_not_hide_the_others(launching, store, folder):
    store.blobs["_datasets/aa/1.json"] = b"{"
    store.blobs["_datasets/d/7.json"] = store.blobs["_datasets/d/1.json"]
    typed = launching.type("data", "ls")
    assert typed.code == 0
    assert [line.split()[:2] for line in typed.out.splitlines()[1:]] == [["d", "1"]]
    assert typed.err.startswith("warning: `_datasets/aa/1.json` cannot be read: ")
    assert typed.err.endswith("; 1 more cannot be read\n")
    typed = launching.type("data", "ls", "aa")
    assert (typed.code, typed.out) == (1, "")
    assert "error: `_datasets/aa/1.json` cannot be read: " in typed.err


def test_a_sas_file_is_handed_to_the_store_and_never_read_from_argv(launching, folder, opened):
    sas = launching.folder / "sas"
    assert launching.type("data", "ls", "--sas", str(sas)).code == 0
    assert opened == [None, sas]


def test_pull_mirrors_only_when_it_is_agreed_to(launching, folder, monkeypatch):
    target = make_folder(launching.folder / "to", {f"old/{n:02}": b"" for n in range(30)})
    command = ("data", "pull", "d", "--to", "to", "--delete")
    dry = launching.type(*command, "--dry-run")
    assert "30 files of to that d@1 does not have:\n  old/00\n" in dry.err
    assert "  old/19\n  ... and 10 more\n" in dry.err
    assert dry.err.endswith("would receive 3 files (7 B) and delete 30 files\n")
    assert dry.out == ""
    refused = launching.type(*command)
    assert (refused.code, len(read_folder(target))) == (2, 30)
    assert "Delete 30 files from to? No terminal is there to answer" in refused.err
    done = launching.type(*command, "--yes", "--json")
    assert {key: done.json()[key] for key in ("files_received", "files_deleted")} == {
        "files_received": 3,
        "files_deleted": 30,
    }
    assert read_folder(target) == read_folder(folder)
    make_folder(target, {"other": b""})
    deleted = launching.type(*command, "--yes")
    assert deleted.err == (
        "1 file of to that d@1 does not have:\n  other\ndeleted 1 file from to\n"
    )
    again = launching.type(*command)
    assert (again.code, again.err, again.out) == (0, "d@1 is there already\n", "to\n")


def test_show_sums_a_version_up(launching, folder, store):
    typed = launching.type("data", "show", "d")
    digest = next(name.split("/")[1] for name in store.blobs if name.startswith("d/"))
    assert typed.code == 0
    lines = [line.split() for line in typed.out.splitlines()]
    assert ["dataset", "d@1"] in lines
    assert ["digest", digest] in lines
    assert ["sub/", "2", "4", "B"] in lines
    storage = launching.environment.storage
    url = f"{storage.blob_endpoint}/data/d/{digest}/"
    assert ["url", url] in lines
    shown = launching.type("data", "show", "d@1", "--json").json()
    assert list(shown) == [*KEYS, "url", "folders", "kinds"]
    assert shown["folders"][0] == {"name": "sub/", "files": 2, "bytes": 4}


def test_show_lists_files(launching, folder):
    typed = launching.type("data", "show", "d", "--files")
    assert [line.split() for line in typed.out.splitlines()] == [
        ["3", "a"],
        ["0", "sub/b"],
        ["4", "sub/c"],
    ]
    listed = launching.type("data", "show", "d", "--files", "--json").json()
    assert [file["path"] for file in listed["list"]] == ["a", "sub/b", "sub/c"]
    assert listed["listed"] == 3


def test_diff_shows_what_changed(launching, folder):
    same = launching.type("data", "diff", "d", "d@1")
    assert (same.code, same.out) == (0, "d@1 and d@1 have the same content\n")
    (folder / "a").unlink()
    make_folder(folder, {"new": b"12", "sub/c": b"6666"})
    launching.type("data", "push", "digits", "d")
    typed = launching.type("data", "diff", "d@1", "d@2")
    assert typed.code == 0
    assert typed.out.endswith(
        "1 added, 1 removed, 1 changed\n  - a  3 B\n  + new  2 B\n  ~ sub/c  4 B -> 4 B\n"
    )
    parted = launching.type("data", "diff", "d@1", "d@2", "--json").json()
    assert parted["changes"] == [
        {"kind": "removed", "path": "a", "a": 3, "b": None},
        {"kind": "added", "path": "new", "a": None, "b": 2},
        {"kind": "changed", "path": "sub/c", "a": 4, "b": 4},
    ]
    assert (parted["added"], parted["a"]["version"], parted["b"]["version"]) == (1, 1, 2)
    nothing = launching.type("data", "diff", "d@2", "d@2", "--json").json()
    assert nothing["changes"] == []


def test_rm_asks_and_keeps_the_number(launching, folder, store):
    refused = launching.type("data", "rm", "d@1")
    assert (refused.code, "No terminal is there to answer" in refused.err) == (2, True)
    assert launching.type("data", "ls", "--json").json()[0]["version"] == 1
    done = launching.type("data", "rm", "d@1", "--yes")
    assert done.code == 0
    assert "d@1: 3 files, 7 B, pushed 20" in done.err
    gone = launching.type("data", "pull", "d@1", "--to", "x")
    assert (gone.code, "`d@1` was removed on 20" in gone.err) == (102, True)
    assert launching.type("data", "push", "digits", "d").out == "d@2\n"


def test_rm_refuses_while_a_run_uses_the_version(launching, folder, store):
    """Also one that was started long ago, before many others."""
    record = launching.type("data", "ls", "--json").json()[0]
    fields = ("name", "version", "digest", "files", "bytes")
    dataset = DatasetVersion(**{key: record[key] for key in fields})
    inputs = {"x": InputSpec(dataset=dataset, mode="stream")}
    on = launching.add_run(inputs=inputs)
    assert launching.type("data", "rm", "d@1").code == 2  # only asks

    run_dir = RunStore.of(launching.environment).runs / on
    events = (run_dir / "events.jsonl").read_text().splitlines(keepends=True)
    (run_dir / "events.jsonl").write_text(events[0])
    for _ in range(201):
        launching.add_run()
    (run_dir.parent / "20260101-000000-0000").mkdir()  # no run yet
    damaged = launching.add_run()
    (run_dir.parent / damaged / "run.json").write_text("{")
    (run_dir.parent / damaged / "events.jsonl").unlink()
    locks = [take_lock(run_dir), take_lock(run_dir.parent / damaged)]
    typed = launching.type("data", "rm", "d@1", "--yes")
    assert (typed.code, f"the run {on} reads `d@1`" in typed.err) == (3, True)
    assert launching.type("data", "ls", "--json").json()[0]["version"] == 1
    os.close(locks[0])
    gone = launching.type("data", "rm", "d@1", "--yes")
    os.close(locks[1])
    assert (gone.code, f"{damaged}/run.json` is damaged" in gone.err) == (0, True)


def test_register_names_what_lies_there(launching, store):
    store.blobs |= {"raw/p/a": b"one", "raw/p/b": b"two"}
    typed = launching.type("data", "register", "photos", "raw/p")
    assert (typed.code, typed.out) == (0, "photos@1\n")
    shown = launching.type("data", "show", "photos", "--json").json()
    assert (shown["prefix"], shown["url"].endswith("/data/raw/p/")) == ("raw/p/", True)
    again = launching.type("data", "register", "photos", "raw/p", "--json").json()
    assert again["already"]


@pytest.mark.parametrize(
    ("engine", "engine_fails"), [("azureml", True), ("azureml", False), ("azureml_v1", False)]
)
def test_on_azure_a_version_becomes_a_data_asset(
    launching, store, monkeypatch, engine, engine_fails
):
    made = []

    def make_asset(dataset, wire):
        made.append(f"{dataset.name}@{dataset.version}")
        if engine_fails:
            message = "`d@1` is in the store, but has no data asset: no"
            raise EnvironmentFailure(message, hint="type the same again")

    def archive_asset(dataset, wire):
        made.append(f"no {dataset.name}@{dataset.version}")

    monkeypatch.setattr("jobs.engines.azure_ml.data_assets.make_asset", make_asset)
    monkeypatch.setattr("jobs.engines.azure_ml.data_assets.archive_asset", archive_asset)
    environment = msgspec.structs.replace(
        launching.environment, engine=engine, subscription_id="S", resource_group="G"
    )
    launching.write_environment(environment)
    make_folder(launching.folder / "digits", {"a": b"one"})
    launching.type("data", "push", "digits", "d", "--dry-run")
    assert made == []
    typed = launching.type("data", "push", "digits", "d")
    assert (typed.code, typed.out, made) == (0, "d@1\n", ["d@1"])
    assert ("has no data asset: no (type the same again)" in typed.err) == engine_fails
    shown = launching.type("data", "show", "d", "--json").json()
    assert shown["datastore"].startswith("azureml://subscriptions/S/resourcegroups/G/workspaces/")
    assert launching.type("data", "rm", "d@1", "--yes").code == 0
    assert made == ["d@1", "no d@1"]


def test_two_names_that_only_case_parts_are_warned_of(launching, store):
    make_folder(launching.folder / "x", {"A": b"1", "a": b"2"})
    typed = launching.type("data", "push", "x", "d")
    assert typed.code == 0
    assert "warning: `A` and `a` are the same name on macOS and Windows" in typed.err


def test_versions_are_offered_after_tab(launching, folder):
    (folder / "a").write_bytes(b"two!")
    launching.type("data", "push", "digits", "d")
    typed = SimpleNamespace(params={"stack": "local", "env": launching.env_file})
    assert dict(dataset_versions(typed, "d")) == {
        "d": "version 2",
        "d@2": "3 files, 8 B",
        "d@1": "3 files, 7 B",
    }
    assert dataset_versions(typed, "d@1") == [("d@1", "3 files, 7 B")]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("500", 500),
        ("500k", 500_000),
        ("20M", 20_000_000),
        ("1.5G", 1_500_000_000),
        ("2m", 2 * 10**6),
    ],
)
def test_a_rate_is_read_as_people_write_it(text, rate):
    assert bytes_per_s(text) == rate


@pytest.mark.parametrize("text", ["", "0", "-1M", "fast", "1e999", "nan", "M", "20MB"])
def test_what_is_no_rate_is_named(launching, store, text):
    typed = launching.type("data", "push", "digits", "d", f"--limit-rate={text}")
    assert (typed.code, "invalid rate" in typed.err) == (2, True)


def test_progress_without_a_known_end_says_how_far_it_is():
    stream = io.StringIO()
    line = ProgressLine("reading", stream=stream)
    line(Transfer(files_done=5, bytes_done=7))
    assert stream.getvalue() == ""
    line(Transfer(files_done=5, bytes_done=7, files=5, bytes=7))
    assert stream.getvalue() == "reading 5/5 files, 7 B of 7 B (100%)\n"
    quiet = ProgressLine("reading", stream=stream, after_s=3600)
    quiet(Transfer(files_done=5, bytes_done=7, files=5, bytes=7))
    assert stream.getvalue().count("\n") == 1
    assert sys.stderr is not stream
