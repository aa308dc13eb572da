"""The removal of a run of Azure ML, step by step: what is sent, and in which order blobs go."""

from pathlib import Path

import pytest

from jobs.contracts.errors import Refused
from jobs.engines.azure_ml.intents import GIVEN_UP, SUBMITTED
from jobs.engines.azure_ml.removal import CloudRemoval, archived_body
from jobs.engines.azure_ml_v1.removal import V1Removal
from tests.fakes.azure_runs import RUN, MemoryRuns, details
from tests.fakes.gangs import make_spec

SHOWN = {
    "status": "Completed",
    "services": {"Studio": {"jobServiceType": "Studio"}},
    "displayName": "first",
    "isArchived": False,
    "outputs": {"default": {"jobOutputType": "uri_folder"}, "run": {"uri": "azureml://run"}},
}


@pytest.fixture
def runs(tmp_path):
    runs = MemoryRuns(tmp_path)
    runs.memory.blobs |= {f"{RUN}/run.json": b"{}", f"{RUN}/outputs/model/a": b"weights"}
    runs.memory.blobs |= {f"checkpoints/{RUN}/step/state": b"state", "another/run.json": b"{}"}
    return runs


def test_a_job_is_archived_by_all_that_was_sent_for_it():
    assert archived_body({"properties": SHOWN}) == {
        "properties": {
            "displayName": "first",
            "isArchived": True,
            "outputs": {"run": {"uri": "azureml://run"}},
        }
    }


def test_a_run_that_may_go_on_is_refused(runs):
    handle = runs.add(make_spec(["true"]), RUN, details("Running"))
    with pytest.raises(Refused, match=f"{RUN} is not over, or may be started again"):
        CloudRemoval(runs).remove(handle)
    assert f"{RUN}/run.json" in runs.memory.blobs


def test_the_record_goes_last_and_a_later_call_goes_on(runs, monkeypatch):
    handle = runs.add(make_spec(["true"]), RUN, details("Completed", ended=60))
    removal, delete = CloudRemoval(runs), runs.memory.delete
    assert removal.size([handle]) == len(b"{}weightsstate")

    def cut_off(names):
        names = list(names)
        assert f"{RUN}/run.json" not in names
        delete(names[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(runs.memory, "delete", cut_off)
    with pytest.raises(KeyboardInterrupt):
        removal.remove(handle)
    monkeypatch.undo()
    assert f"{RUN}/run.json" in runs.memory.blobs
    assert (runs.names(), [each.id for each in removal.cut_off()]) == ([], [RUN])
    removal.remove(handle)
    assert list(runs.memory.blobs) == ["another/run.json"]
    assert removal.cut_off() == []


def test_a_run_of_the_first_api_stays_in_the_studio_and_that_is_told(runs, capsys):
    runs.scripted.jobs.append({"name": RUN, "properties": SHOWN})
    handle = runs.add(make_spec(["true"]), RUN, details("Completed", ended=60))
    V1Removal(runs).remove(handle)
    assert runs.scripted.sent == []
    assert f"the studio goes on listing {RUN}" in capsys.readouterr().err
    assert list(runs.memory.blobs) == ["another/run.json"]


IDS = [f"20261121-12000{number}-0001" for number in (1, 2, 3)]


def test_runs_of_other_machines_are_none_of_this_ones(runs):
    for run, mark in zip(IDS, (SUBMITTED, GIVEN_UP, ""), strict=True):
        handle = runs.add(make_spec(["true"]), run, details("Completed", ended=60))
        if mark:
            Path(handle.run_dir, mark).touch()
    # The third was only brought here, to be looked at.
    assert CloudRemoval(runs).started_here() == [IDS[1], IDS[0]]


def test_the_mark_of_a_kept_run_is_found_by_every_machine(runs, tmp_path):
    handle = runs.add(make_spec(["true"]), RUN, details("Completed", ended=60))
    other = MemoryRuns(tmp_path / "other")
    other.__dict__["blobs"] = runs.memory
    here, there = CloudRemoval(runs), CloudRemoval(other)
    assert not there.is_kept(handle)
    here.keep(handle, is_kept=True)
    assert there.is_kept(handle)
    there.keep(handle, is_kept=False)
    assert not here.is_kept(handle)


def test_runs_that_came_later_are_looked_through_whoever_started_them(runs):
    for run in IDS:
        handle = runs.add(make_spec(["true"]), run, details("Completed", ended=60))
        runs.memory.blobs[f"{run}/run.json"] = Path(handle.run_dir, "run.json").read_bytes()
    ours = {"tags": {"trainyard": "1"}, "status": "Completed"}
    runs.scripted.jobs = [{"name": run, "properties": ours} for run in reversed(IDS)]
    damaged = []
    assert [each.id for each in CloudRemoval(runs).records(IDS[0], damaged)] == [IDS[2], IDS[1]]
    assert damaged == []
