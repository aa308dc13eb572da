"""What `launch` meant to start is found again, by who is still there."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import Unreached
from jobs.contracts.spec import RunState
from jobs.engines.azure_ml import submission
from jobs.engines.azure_ml.intents import (
    GIVEN_UP,
    INTENT,
    RESUME_S,
    SUBMITTED,
    Intent,
    give_up,
    hold,
    mark_submitted,
    open_intents,
    plan_digest,
    read_intent,
    write_intent,
)
from jobs.engines.azure_ml.request import plan_job
from jobs.engines.azure_ml.submission import SETTLE_S, claimed, settle_intents
from jobs.engines.azure_ml.uploads import UploadCache
from jobs.runs.cloud_folder import state_root, workspace_folder
from jobs.runs.run_folder import read_events
from jobs.runs.store import RunStore, run_id
from tests.fakes.cloud_stack import IMAGE, make_cloud_environment
from tests.fakes.gangs import make_spec


def make_intent(store: RunStore, *, ago_s: float = 0.0) -> tuple[Path, Intent]:
    since_s = time.time() - ago_s
    run_dir = store.runs / run_id(int(since_s * 1e6))
    run_dir.mkdir(parents=True)
    intent = Intent(plan_digest="p", code="c", since_s=since_s)
    write_intent(run_dir, intent)
    return run_dir, intent


def test_open_intents_are_found_newest_first_while_they_are_young(tmp_path):
    store = RunStore(tmp_path)
    older, newer = make_intent(store, ago_s=59 * 60), make_intent(store)
    make_intent(store, ago_s=61 * 60)
    for mark in (mark_submitted, give_up):
        mark(make_intent(store, ago_s=30 if mark is give_up else 20)[0])
    assert list(open_intents(store, RESUME_S)) == [newer, older]


def test_an_intent_ends_in_one_of_two_ways(tmp_path):
    store = RunStore(tmp_path)
    for number, (mark, name) in enumerate([(mark_submitted, SUBMITTED), (give_up, GIVEN_UP)]):
        run_dir, intent = make_intent(store, ago_s=number)
        assert read_intent(run_dir) == intent
        mark(run_dir)
        assert read_intent(run_dir) is None
        assert (run_dir / name).exists()
        mark(run_dir)  # again is fine


def test_an_intent_cut_off_while_it_was_written_is_none(tmp_path):
    run_dir, _ = make_intent(RunStore(tmp_path))
    (run_dir / INTENT).write_bytes(b'{"plan')
    assert read_intent(run_dir) is None


def test_an_intent_is_held_by_one_process_and_let_go_by_its_death(tmp_path):
    run_dir, _ = make_intent(RunStore(tmp_path))
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom jobs.engines.azure_ml.intents import hold\n"
        "with hold(Path(sys.argv[1])) as is_ours:\n"
        "    print(is_ours, flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(run_dir)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with hold(run_dir) as is_ours:
            assert not is_ours
        other.kill()
    with hold(run_dir) as is_ours:
        assert is_ours


def test_an_intent_that_another_has_withdrawn_with_its_folder_is_not_held(tmp_path):
    with hold(tmp_path / "gone") as is_ours:
        assert not is_ours


def test_who_goes_on_with_an_intent_is_waited_for_anew(tmp_path):
    """What it sends may arrive as late as what was sent first."""
    store = RunStore(tmp_path)
    run_dir, intent = make_intent(store, ago_s=SETTLE_S - 1)
    again = msgspec.structs.replace(intent, since_s=time.time())
    with claimed(store, again) as (found, is_new):
        assert (found, is_new) == (run_dir, False)
    assert read_intent(run_dir) == again


def test_a_withdrawn_run_leaves_no_folder_where_a_held_lock_stays(tmp_path):
    """As on Windows."""
    intent = Intent(plan_digest="p", code="c", since_s=time.time())
    with claimed(RunStore(tmp_path), intent) as (run_dir, is_new):
        assert is_new
        (run_dir / INTENT).unlink()
        assert list(run_dir.iterdir()) != []
    assert not run_dir.exists()


def test_the_same_job_has_the_same_digest():
    environment = make_cloud_environment()

    def digest(**changes):
        spec = make_spec(["python"], image=IMAGE, cluster="cpu", **changes)
        return plan_digest(plan_job(spec, environment))

    assert digest(env={"A": "1", "B": "2"}) == digest(env={"B": "2", "A": "1"})
    assert digest() != digest(nodes=2)


def test_what_is_known_is_remembered_until_it_is_forgotten(tmp_path):
    known = UploadCache(tmp_path)
    assert not known.has("a")
    known.add("a")
    assert UploadCache(tmp_path).has("a")
    known.forget("a")
    known.forget("a")
    assert not known.has("a")


def test_a_full_disk_forgets(tmp_path):
    (tmp_path / "known").write_text("no folder")
    known = UploadCache(tmp_path)
    known.add("a")
    assert not known.has("a")


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, "/home/a/.local/state"),
        ("linux", {"XDG_STATE_HOME": "/state"}, "/state"),
        ("linux", {"XDG_STATE_HOME": "state"}, "/home/a/.local/state"),
        ("darwin", {"XDG_STATE_HOME": "/state"}, "/home/a/Library/Application Support"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local"),
    ],
)
def test_each_platform_has_its_place(platform, environ, expected):
    assert state_root(environ, platform, Path("/home/a")) == Path(expected, "trainyard")


def test_a_workspace_is_known_by_its_id_however_it_is_written(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    environment = make_cloud_environment()
    workspace = environment.workspace

    def folder(**changes):
        changed = msgspec.structs.replace(workspace, **changes)
        return workspace_folder(make_cloud_environment(workspace=changed))

    assert folder() == folder(id=workspace.id.upper())
    assert folder().parent == tmp_path / "trainyard"
    assert folder().name.startswith("W-")
    assert folder(id=workspace.id + "2") != folder()


def test_what_a_killed_launch_had_copied_goes_where_no_job_can_have_been_sent(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    environment = make_cloud_environment()
    store = RunStore(workspace_folder(environment))
    copied, young = make_intent(store, ago_s=SETTLE_S + 1)[0], make_intent(store)[0]
    held = make_intent(store, ago_s=SETTLE_S + 2)[0]
    for run_dir in (copied, young, held):
        (run_dir / "code").mkdir()
    asked: list[str] = []
    with hold(held):
        settle_intents(environment, lambda run: bool(asked.append(run)))
    assert sorted(store.runs.iterdir()) == sorted([young, held])
    assert asked == []


def test_a_run_that_azure_never_got_is_lost_once_while_the_blob_store_is_out_of_reach(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    environment = make_cloud_environment()
    run_dir, _ = make_intent(RunStore(workspace_folder(environment)), ago_s=SETTLE_S + 1)
    (run_dir / "run.json").touch()

    def nobody(_environment):
        message = "nobody answers"
        raise Unreached(message)

    monkeypatch.setattr(submission, "open_runs_store", nobody)
    for _ in range(2):
        settle_intents(environment, lambda _: False)
    assert [event.state for event in read_events(run_dir)] == [RunState.LOST]
    assert (run_dir / GIVEN_UP).exists()
