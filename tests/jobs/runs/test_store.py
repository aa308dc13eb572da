"""The run store: ids, finding, listing, records, and what survives."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.contracts.spec import Plan, RunHandle, RunRecord, RunState
from jobs.runs import supervision
from jobs.runs.run_folder import RunEvent, append_event, read_events
from jobs.runs.store import RUN_ID, RunStore, run_id
from tests import seeds
from tests.fakes.gangs import Gangs, make_environment, make_spec

NEWER = "20261121-120001-0000"
OLDER = "20261121-120000-0000"


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.of(make_environment(tmp_path))


def make_record(run_id: str) -> RunRecord:
    plan = Plan(
        engine="local", spec=make_spec(["true"]), request=msgspec.Raw(b'{"compute":"cpu-test"}')
    )
    return RunRecord(
        schema=1,
        id=run_id,
        created="2026-11-21T12:00:00.000000Z",
        plan=plan,
        git=None,
        image_digest=None,
        environment_digest="sha256:0",
    )


def add_run(store: RunStore, run_id: str) -> RunHandle:
    handle = store.handle(run_id)
    Path(handle.run_dir).mkdir(parents=True)
    store.commit(make_record(run_id))
    return handle


def test_run_id_is_the_utc_time_with_the_microsecond_in_base_36() -> None:
    assert run_id(1_795_262_400_000_000) == "20261121-120000-0000"
    assert run_id(1_795_262_400_999_999) == "20261121-120000-lflr"


def test_ids_sort_by_time() -> None:
    times = [1_795_262_400_000_000 + step for step in (0, 1, 35, 36, 999_999, 1_000_000)]
    ids = [run_id(each) for each in times]
    assert ids == sorted(ids)
    assert all(RUN_ID.fullmatch(each) for each in ids)


def test_claims_are_distinct_within_a_microsecond(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_795_262_400_000_000_000)
    claimed = [store.claim().id for _ in range(3)]
    assert claimed == [f"20261121-120000-000{tail}" for tail in "012"]


def test_claim_in_a_folder_that_cannot_be_written_says_which(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a folder should be")
    with pytest.raises(EnvironmentFailure, match=f"cannot write a run in `{tmp_path}/runs`"):
        RunStore(tmp_path).claim()


def test_list_gives_the_newest_first_and_passes_over_unfinished_claims(store: RunStore) -> None:
    for each in (OLDER, NEWER):
        add_run(store, each)
    (store.runs / "20261121-120002-0000").mkdir()
    (store.runs / "notes.txt").touch()
    assert [each.id for each in store.list()] == [NEWER, OLDER]
    assert [each.id for each in store.list(1)] == [NEWER]
    assert RunStore(store.workspace / "elsewhere").list() == []


def test_list_reads_no_more_records_than_asked_for(store: RunStore) -> None:
    for number in range(30):
        handle = add_run(store, f"20261121-1200{number:02d}-0000")
        if number < 10:
            (Path(handle.run_dir) / "run.json").write_text("not even JSON")
    assert len(store.list(20)) == 20


@pytest.mark.parametrize("name", [NEWER, "20261121-120001", "last"])
def test_find_takes_an_id_a_unique_prefix_or_last(store: RunStore, name: str) -> None:
    for each in (OLDER, NEWER):
        add_run(store, each)
    assert store.find(name).id == NEWER


def test_find_refuses_what_fits_none_or_several(store: RunStore) -> None:
    with pytest.raises(NotFound, match="there is no run yet"):
        store.find("last")
    for each in (OLDER, NEWER):
        add_run(store, each)
    with pytest.raises(NotFound, match="there is no run `2025`"):
        store.find("2025")
    with pytest.raises(NotFound):
        store.find("../runs")
    with pytest.raises(LaunchError, match="`2026` fits 2 runs") as caught:
        store.find("2026")
    assert caught.value.hint == f"one of {NEWER}, {OLDER}"


def test_record_comes_back_whole(store: RunStore) -> None:
    handle = add_run(store, NEWER)
    record, made = (
        msgspec.json.encode(each) for each in (store.record(handle), make_record(NEWER))
    )
    assert msgspec.json.format(record) == msgspec.json.format(made)


def test_run_that_nobody_looks_after_is_lost(store: RunStore) -> None:
    handle = add_run(store, NEWER)
    status = store.status(handle)
    assert (status.state, status.reason) == (RunState.LOST, "its supervisor is gone")


def test_run_is_not_lost_while_its_lock_is_held(store: RunStore) -> None:
    handle = add_run(store, NEWER)
    lock = supervision.take_lock(Path(handle.run_dir))
    assert store.status(handle).state is RunState.QUEUED
    os.close(lock)
    assert store.status(handle).state is RunState.LOST


def test_run_whose_events_were_removed_before_its_record_is_queued_while_it_is_looked_after(
    store: RunStore,
) -> None:
    run_dir = Path(add_run(store, NEWER).run_dir)
    (run_dir / "events.jsonl").unlink()
    lock = supervision.take_lock(run_dir)
    status = store.status(store.handle(NEWER))
    assert (status.state, status.reason) == (RunState.QUEUED, None)
    os.close(lock)
    assert store.status(store.handle(NEWER)).state is RunState.LOST


def test_status_tells_the_last_event_and_when_it_ran(store: RunStore) -> None:
    handle = add_run(store, NEWER)
    run_dir = Path(handle.run_dir)
    append_event(run_dir, RunEvent(ts="2026-11-21T12:00:01.000000Z", state=RunState.RUNNING))
    append_event(
        run_dir,
        RunEvent(
            ts="2026-11-21T12:00:02.000000Z", state=RunState.FAILED, reason="boom", exit_code=3
        ),
    )
    status = store.status(handle)
    assert msgspec.to_builtins(status) == {
        "id": NEWER,
        "name": "test",
        "state": "failed",
        "reason": "boom",
        "exit_code": 3,
        "stack": "local",
        "cluster": "cpu",
        "nodes": 1,
        "world_size": 2,
        "created": "2026-11-21T12:00:00.000000Z",
        "started": "2026-11-21T12:00:01.000000Z",
        "ended": "2026-11-21T12:00:02.000000Z",
        "run_dir": str(run_dir),
        "experiment": "test",
        "tags": {},
    }


def test_event_cut_off_by_a_full_disk_is_passed_over(store: RunStore) -> None:
    handle = add_run(store, NEWER)
    events = Path(handle.run_dir) / "events.jsonl"
    whole = read_events(events.parent)
    with events.open("a") as file:
        file.write('{"ts":"2026-11-21T12:00')
    assert read_events(events.parent) == whole


WHY = "is damaged|has a format that this version does not know"
HOSTILE: dict[str, bytes] = {
    "no JSON": b"not even JSON",
    "another type": b"[1, 2]",
    "deep": b"[" * 200_000,
    "deep inside": b'{"plan": {"request": ' + b'{"a":' * 200_000,
    "no UTF-8": b'{"id": "\xff\xfe"}',
    "another run": b'"id": "20261121-120000-zzzz"',
    "a path": b'"id": "../../../../etc"',
    "no time": b'"created": "yesterday"',
    "no nodes": b'"nodes": 0',
    "too many nodes": b'"nodes": 1' + b"0" * 5000,
}


def damage(path: Path, content: bytes) -> None:
    """Put the content where the record is, or one of its values."""
    key, _, value = content.partition(b": ")
    if value and not key.startswith(b"{"):
        record = path.read_bytes()
        begin = record.index(key + b": ")
        end = record.index(b"\n", begin)
        content = record[:begin] + content + b"," + record[end:]
    path.write_bytes(content)


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_one_damaged_record_is_told_and_the_other_runs_listed(
    store: RunStore, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    for each in (OLDER, NEWER):
        add_run(store, each)
    path = store.runs / NEWER / "run.json"
    damage(path, content)
    assert [each.id for each in store.list()] == [OLDER]
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert re.match(f"warning: `{path}` ({WHY}): ", told[0])
    assert len(told[0]) < 400
    for read in (store.status, store.record):
        with pytest.raises(EnvironmentFailure, match=f"({WHY})"):
            read(store.handle(NEWER))


def test_what_is_no_file_is_no_record(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    """A job's own program may put anything there; a pipe would be read for ever."""
    ids = [OLDER, *(f"20261121-12000{number}-0000" for number in (1, 2, 3))]
    for each in ids:
        add_run(store, each)
    pipe, device, large = (store.runs / each / "run.json" for each in ids[1:])
    for path in (pipe, device, large):
        path.unlink()
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    with large.open("wb") as file:
        file.truncate(1 << 40)
    (store.runs / OLDER / "supervisor.lock").unlink(missing_ok=True)
    os.mkfifo(store.runs / OLDER / "supervisor.lock")
    assert [each.id for each in store.list()] == [OLDER]
    supervision.poke(store.runs / OLDER)
    why = f"it has {1 << 40} bytes, more than the limit of {64 << 20}"
    assert (
        capsys.readouterr().err == f"warning: cannot read `{large}`: {why}; 2 more cannot be read\n"
    )
    with pytest.raises(EnvironmentFailure, match=r"cannot read `.*run.json`: it is not a file"):
        store.record(store.handle(pipe.parent.name))


@pytest.mark.parametrize(
    "line", ['{"ts": "soon", "state": "completed"}', "[" * 200_000, '{"ts": 1}', "\xff"]
)
def test_an_event_that_is_none_is_passed_over(store: RunStore, line: str) -> None:
    handle = add_run(store, NEWER)
    run_dir = Path(handle.run_dir)
    whole = read_events(run_dir)
    with (run_dir / "events.jsonl").open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    assert read_events(run_dir) == whole


def test_record_of_a_newer_version_is_an_error_with_a_hint(store: RunStore) -> None:
    handle = add_run(store, NEWER)
    (Path(handle.run_dir) / "run.json").write_text('{"schema": 2}')
    with pytest.raises(EnvironmentFailure, match=f"({WHY})") as caught:
        store.record(handle)
    assert caught.value.hint == "use the version of `launch` that wrote it"


# --- many at once, and killed at any moment ----------------------------------------------------


def submit_some(workspace: Path, count: int) -> list[str]:
    gangs = Gangs(workspace, nodes=64)
    return [gangs.submit(["true"], processes_per_node=1).id for _ in range(count)]


def test_sixteen_processes_that_submit_at_once_make_distinct_runs_that_all_end(
    tmp_path: Path,
) -> None:
    processes, each = 16, 2
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        lists = pool.starmap(submit_some, [(tmp_path, each)] * processes)
    ids = [name for names in lists for name in names]
    gangs = Gangs(tmp_path, nodes=64)
    assert len(set(ids)) == processes * each
    assert sorted(ids, reverse=True) == [status.id for status in gangs.engine.store.list(None)]
    for name in ids:
        handle = gangs.engine.store.handle(name)
        assert gangs.wait(handle, 120).state is RunState.COMPLETED
        gangs.wait_until_gone(handle)


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_four_hundred_submits_at_once_make_four_hundred_runs(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(16) as pool:
        lists = pool.starmap(submit_some, [(tmp_path, 25)] * 16)
    ids = [name for names in lists for name in names]
    gangs = Gangs(tmp_path, nodes=64)
    assert len(set(ids)) == 400
    handles = [gangs.engine.store.handle(name) for name in ids]
    assert {gangs.wait(handle, 600).state for handle in handles} == {RunState.COMPLETED}


SUBMITTER = """
import sys
from pathlib import Path
from tests.fakes.gangs import Gangs
gangs = Gangs(Path(sys.argv[1]), nodes=8)
while True:
    print(gangs.submit(["sleep", "0.2"], processes_per_node=1).id, flush=True)
"""


def kill_submitter_after(workspace: Path, delay_s: float) -> list[str]:
    """Start a process that submits in a loop, kill it; gives the runs that it acknowledged."""
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", SUBMITTER, str(workspace)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        return [line.strip() for line in (first, *process.stdout) if line.endswith("\n")]


@pytest.fixture
def seeded() -> random.Random:
    return seeds.dice(20261121)


@pytest.mark.parametrize("trials", [1, 3, pytest.param(60, marks=pytest.mark.faults)])
def test_submitter_killed_at_any_moment_loses_no_acknowledged_run(
    tmp_path: Path, seeded: random.Random, trials: int
) -> None:
    gangs = Gangs(tmp_path, nodes=8)
    for _ in range(trials):
        acknowledged = kill_submitter_after(tmp_path, seeded.uniform(0, 0.2))
        listed = {status.id: status for status in gangs.engine.store.list(None)}
        assert set(acknowledged) <= set(listed)
        for name in acknowledged:
            assert gangs.wait(gangs.engine.store.handle(name)).state is RunState.COMPLETED
        # A run that was not acknowledged either ends like any other or is lost; none stays.
        for name in set(listed) - set(acknowledged):
            handle = gangs.engine.store.handle(name)
            assert gangs.wait(handle).state in (
                RunState.COMPLETED,
                RunState.LOST,
                RunState.FAILED,
            )
            gangs.wait_until_gone(handle)
