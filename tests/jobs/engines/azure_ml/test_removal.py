"""The removal of a run of Azure ML, step by step: what is sent, and in which order blobs go."""

import pytest

from jobs.contracts.errors import Refused
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
