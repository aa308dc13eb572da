"""`launch prune`, as it is typed: what goes, what stays and why, and what a kill leaves."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import DatasetVersion, InputSpec, ResumePoint
from jobs.datasets import datasets as data
from jobs.datasets import models
from jobs.datasets.datasets import Datasets
from jobs.datasets.lineage import InputUsed, Lineage
from jobs.datasets.models import Models
from jobs.engines.local.engine import LocalEngine
from jobs.engines.local.removal import LocalRemoval
from jobs.engines.local.runs import LocalRuns
from jobs.host import console
from jobs.host.private import open_lock, try_lock
from jobs.images import unused
from jobs.images.runtimes import FINISHED
from jobs.runs.supervision import take_lock
from tests.fakes.blob_store import MemoryStore
from tests.folders import make_folder
from tests.jobs.commands.test_removal import du

DIGITS = DatasetVersion(name="digits", version=1, digest="d" * 64, files=1, bytes=4)
MONTHS_S = 90 * 86400


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, where nothing of this machine is found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "trainyard"


@pytest.fixture
def prune(launching, cache):
    """Types it; gives each thing with the reason why it stays (None where it goes)."""

    def typed(*words):
        typed = launching.type("prune", "--json", *words)
        assert typed.code == 0, typed.err
        told = typed.json()
        stays = {each["name"]: each["reason"] for each in told["stays"]}
        return stays | dict.fromkeys((each["name"] for each in told["goes"]), None), told

    return typed


def make_old(*paths):
    then = time.time() - MONTHS_S
    for path in paths:
        os.utime(path, (then, then))


def lay_input(launching, name):
    folder = launching.workspace / "inputs" / name
    folder.mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"a" * 50_000)
    make_old(folder)
    return folder


def lay_runtime(cache, name, kind="runtimes"):
    root = cache / kind / name
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(sys.executable)
    (root / FINISHED).touch()
    make_old(root / FINISHED, root)
    return root


def test_runs_stay_that_are_young_newest_kept_resumed_or_on(launching, prune):
    gone, resumed, kept = (launching.add_run() for _ in range(3))
    newest = launching.add_run(resume=ResumePoint(run=resumed, step=1))
    on = launching.add_run()
    folder = launching.workspace / "runs" / on
    events = '{"ts":"2026-01-01T12:00:00.000000Z","state":"running"}\n'
    (folder / "events.jsonl").write_text(events, encoding="utf-8")
    assert launching.type("keep", kept).code == 0
    lock = take_lock(folder)
    try:
        found, told = prune("--keep", "1", "-y")
    finally:
        os.close(lock)
    assert found == {
        on: "not over",
        newest: "of the newest 1",
        kept: "kept",
        resumed: "a run resumed from it",
        gone: None,
    }
    assert told["removed"] is True
    assert launching.run_folders() == sorted([resumed, kept, newest, on])
    found, _ = prune("--keep", "0", "--older", "99999d", "-y")
    assert set(found.values()) == {"too young"}


def test_a_dry_run_tells_the_bytes_of_du_and_removes_nothing(launching, prune):
    run = launching.add_run()
    (launching.workspace / "runs" / run / "model").write_bytes(b"m" * 200_000)
    expected = du(launching.workspace / "runs" / run)
    _, told = prune("--keep", "0", "--dry-run")
    assert (told["removed"], told["bytes"]) == (False, expected)
    assert told["goes"] == [{"kind": "runs", "name": run, "bytes": expected}]
    assert launching.run_folders() == [run]


def test_the_table_names_what_goes_and_why_the_rest_stays(launching, cache):
    first, _ = launching.add_run(), launching.add_run()
    typed = launching.type("prune", "--keep", "1", "--dry-run")
    assert typed.code == 0, typed.err
    lines = [line.split() for line in typed.out.splitlines()]
    assert lines[0] == ["GOES", "NAME", "SIZE"]
    assert lines[1][:2] == ["runs", first]
    assert lines[3] == ["STAYS", "COUNT", "SIZE", "BECAUSE"]
    assert (lines[4][:2], lines[4][4:]) == (["runs", "1"], ["of", "the", "newest", "1"])
    assert typed.err.endswith(" would be freed; nothing was removed\n")
    typed = launching.type("prune", "--keep", "1")
    assert (typed.code, "Remove 1 item, " in typed.err) == (2, True)
    assert len(launching.run_folders()) == 2


def test_inputs_go_that_no_staying_run_reads(launching, prune):
    given = {"digits": InputSpec(dataset=DIGITS, mode="download")}
    launching.add_run(inputs=given)
    read, unread = lay_input(launching, "d" * 64), lay_input(launching, "e" * 64)
    partial = lay_input(launching, f".{'f' * 64}.partial")
    received = lay_input(launching, f".{'a' * 64}.stream.partial")
    lock = open_lock(launching.workspace / "inputs" / f".{'a' * 64}.stream.lock")
    assert try_lock(lock, without_locks=False)
    try:
        found, _ = prune("-y")
    finally:
        os.close(lock)
    assert found["d" * 64] == "read by a run that stays"
    there = [each.exists() for each in (read, unread, partial, received)]
    assert there == [True, False, False, True]
    prune("--keep", "0", "-y")
    assert not read.exists()


def test_an_input_that_a_new_run_reads_is_put_back(launching, prune, monkeypatch):
    folder = lay_input(launching, "d" * 64)
    rename = Path.rename

    def racing(path, target):
        if path == folder:
            launching.add_run(inputs={"digits": InputSpec(dataset=DIGITS, mode="download")})
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", racing)
    _, told = prune("-y")
    assert (folder.exists(), told["bytes"]) == (True, 0)


def test_blocks_of_streams_go_that_no_rank_asked_for_lately(launching, prune):
    cache = launching.workspace / "cache"
    (cache / "set-1").mkdir(parents=True)
    (cache / "trainyard-cache").touch()
    old, recent = cache / "set-1" / "old", cache / "set-1" / "recent"
    for each in (old, recent):
        each.write_bytes(b"b" * 10_000)
    make_old(old)
    _, told = prune("-y")
    assert told["bytes"] == 12_288
    assert [each.name for each in (cache / "set-1").iterdir()] == ["recent"]


def test_runtimes_go_that_neither_image_nor_process_needs(prune, cache, monkeypatch):
    names = ("pytorch-old", "pytorch-now", "pytorch-used", "pytorch-below", "pytorch-built")
    old, now, used, below, built = (lay_runtime(cache, name) for name in names)
    layer = lay_runtime(cache, "pytorch-below+1", "layers")
    os.utime(layer / FINISHED)
    wheel = lay_runtime(cache, "0123456789abcdef", "horovod")
    work = lay_runtime(cache, "fedcba9876543210.work", "horovod")
    monkeypatch.setattr(unused, "current_names", lambda _: frozenset({now.name}))
    lock = open_lock(built.with_name(f"{built.name}.lock"))
    assert try_lock(lock, without_locks=False)
    process = subprocess.Popen(
        [used / "bin" / "python", "-P", "-c", "input()"], stdin=subprocess.PIPE
    )
    try:
        found, _ = prune("-y")
    finally:
        process.communicate(b"\n")
        os.close(lock)
    assert found == {
        old.name: None,
        now.name: "of an image's present lock",
        used.name: "in use",
        below.name: "below a layer that stays",
        built.name: None,  # until its lock was asked for
        layer.name: "used lately",
        wheel.name: None,
        work.name: None,
    }
    there = [each.exists() for each in (old, now, used, below, built, layer, wheel, work)]
    assert there == [False, True, True, True, True, True, False, False]


def test_runtimes_of_runs_that_are_not_over_stay(launching, prune, cache):
    runtime = lay_runtime(cache, "pytorch-queued")
    run = launching.add_run()
    path = launching.workspace / "runs" / run / "run.json"
    record = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**record, "image_digest": runtime.name}))
    program = ["-c", "input()", "jobs.engines.local.supervisor", str(path.parent), "3"]
    process = subprocess.Popen([sys.executable, "-P", *program], stdin=subprocess.PIPE)
    try:
        found, _ = prune("-y")
    finally:
        process.communicate(b"\n")
    assert (found[runtime.name], runtime.exists()) == ("in use", True)


@pytest.mark.parametrize("kind", ["runs", "inputs", "runtimes"])
def test_a_removal_that_was_cut_off_is_ended_by_the_next(
    launching, prune, cache, monkeypatch, kind
):
    run = launching.add_run()
    folders = {
        "runs": launching.workspace / "runs" / run,
        "inputs": lay_input(launching, "d" * 64),
        "runtimes": lay_runtime(cache, "pytorch-old"),
    }
    folder, rmtree = folders[kind], shutil.rmtree

    def cut_off(path, **_):
        if Path(path).name == f".removed-{folder.name}":
            raise KeyboardInterrupt
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", cut_off)
    assert launching.type("prune", "--keep", "0", "-y").code == 130
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    assert folder.with_name(f".removed-{folder.name}").exists()
    assert launching.type("ls", "--json").err == ""
    prune("--keep", "0", "-y")
    assert not [each for each in folder.parent.iterdir() if "removed" in each.name]


def test_a_damaged_record_keeps_what_it_may_name(launching, prune):
    run = launching.add_run()
    folder = lay_input(launching, "d" * 64)
    (launching.workspace / "runs" / run / "run.json").write_text("{", encoding="utf-8")
    found, _ = prune("-y")
    assert found[folder.name] == "a run's record cannot be read"
    assert folder.exists()


class TestDatasets:
    @pytest.fixture
    def versions(self, launching, cache, monkeypatch):
        store = MemoryStore()
        monkeypatch.setattr(data, "open_data_store", lambda _, sas_file=None: store)
        monkeypatch.setattr(models, "open_data_store", lambda _: store)
        for number, content in enumerate((b"one", b"two", b"three"), 1):
            make_folder(launching.folder / str(number), {"a": content})
            assert launching.type("data", "push", str(number), "d").code == 0
        return [Datasets(store).resolve(f"d@{number}").pinned() for number in (1, 2, 3)]

    def test_old_versions_go_that_no_run_reads_if_that_is_asked_for(
        self, launching, versions, prune
    ):
        given = InputSpec(dataset=versions[1], mode="download")
        launching.add_run(inputs={"d": given})
        assert "d@1" not in prune("--older", "0s", "-y")[0]
        found, told = prune("--older", "0s", "--datasets", "-y")
        assert {name: found[name] for name in ("d@1", "d@2", "d@3")} == {
            "d@1": None,
            "d@2": "read by a run that stays",
            "d@3": "the newest version",
        }
        assert told["removed"] is True
        left = launching.type("data", "ls", "--json").json()
        assert [each["version"] for each in left] == [3, 2]

    def test_a_version_stays_that_a_models_record_names(self, launching, versions, prune):
        used = InputUsed(dataset="d", version=1, digest=versions[0].digest)
        lineage = Lineage(
            run="20260101-000000-0001",
            stack="local",
            job="net",
            output="model",
            inputs={"train": used},
            code_digest=None,
            commit=None,
            is_changed=False,
            image="python",
            image_digest=None,
            figures={},
        )
        registered = Models.of(launching.environment).register(
            launching.folder / "3", "net", lineage
        )
        assert registered.dataset.lineage == lineage
        found, _ = prune("--older", "0s", "--datasets", "-y")
        assert {name: found[name] for name in ("d@1", "d@2", "d@3")} == {
            "d@1": "named by a model's record",
            "d@2": None,
            "d@3": "the newest version",
        }
        left = launching.type("data", "ls", "--json").json()
        assert [each["version"] for each in left] == [3, 1]

    def test_a_run_that_is_kept_during_the_question_stays_with_all_that_it_read(
        self, launching, versions, cache, monkeypatch
    ):
        given = {"d": InputSpec(dataset=versions[0], mode="download")}
        run = launching.add_run(inputs=given)
        folder = lay_input(launching, versions[0].digest)

        def answer(_question):
            engine = LocalEngine(launching.environment)
            engine.removal.keep(engine.store.find(run), is_kept=True)
            return True

        monkeypatch.setattr(console, "confirm", answer)
        typed = launching.type("prune", "--older", "0s", "--keep", "0", "--datasets")
        assert typed.code == 0, typed.err
        assert f"runs {run} stays: {run} is marked as kept\n" in typed.err
        assert "datasets d@1 stays: read by a run that stays\n" in typed.err
        assert f"inputs {folder.name} stays: a run that stays reads it\n" in typed.err
        assert launching.run_folders() == [run]
        assert folder.exists()
        left = launching.type("data", "ls", "--json").json()
        assert [each["version"] for each in left] == [3, 1]

    def test_a_run_whose_removal_fails_stays_with_its_version(
        self, launching, versions, cache, monkeypatch
    ):
        given = {"d": InputSpec(dataset=versions[0], mode="download")}
        run = launching.add_run(inputs=given)

        def fail(*_):
            message = "the disk says no"
            raise EnvironmentFailure(message)

        monkeypatch.setattr(LocalRemoval, "remove", fail)
        typed = launching.type("prune", "--older", "0s", "--keep", "0", "--datasets", "-y")
        assert (typed.code, "error: the disk says no" in typed.err) == (1, True)
        assert launching.run_folders() == [run]
        left = launching.type("data", "ls", "--json").json()
        assert [each["version"] for each in left] == [3, 1]

    def test_they_stay_where_others_may_read_them(self, launching, cache, monkeypatch):
        monkeypatch.setattr(LocalRuns, "has_own_records", False)
        typed = launching.type("prune", "--datasets", "-y")
        assert (typed.code, "error: others may need versions" in typed.err) == (3, True)


def test_what_could_not_be_removed_is_not_told_as_freed(launching, cache, monkeypatch):
    stays, goes = launching.add_run(), launching.add_run()
    for run in (stays, goes):
        (launching.workspace / "runs" / run / "model").write_bytes(b"m" * 200_000)
    removed = LocalRemoval.remove

    def remove(self, handle, *more):
        if handle.id == stays:
            message = "cannot remove it"
            raise EnvironmentFailure(message)
        return removed(self, handle, *more)

    expected = du(launching.workspace / "runs" / goes)
    monkeypatch.setattr(LocalRemoval, "remove", remove)
    typed = launching.type("prune", "--older", "0s", "--keep", "0", "-y", "--json")
    assert (typed.code, launching.run_folders()) == (1, [stays])
    assert typed.json()["bytes"] == expected
    assert "error: cannot remove it\n" in typed.err
