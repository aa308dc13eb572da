"""`launch rm` and `launch keep` on the stand-in Azure: jobs, blobs, folders; and what is cut off."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure, forbidden

PROGRAM = """
import os
from pathlib import Path
Path(os.environ["TRAINYARD_OUTPUT_MODEL"], "model.txt").write_text("trained")
folder = Path(os.environ["TRAINYARD_CHECKPOINT_DIR"], "step-000000001-aaaaaaaa")
folder.mkdir(exist_ok=True)
(folder / "state").write_text("state")
(folder / "manifest.json").write_text('{"step": 1}')
"""


def test_a_run_goes_with_its_job_its_blobs_and_its_folder(azure: FakeAzure, tmp_path: Path) -> None:
    launch = AzureLaunch(azure, tmp_path)
    job = launch.write_job(PROGRAM, code=".", outputs={"model": {}})
    first = _run(launch, "run", job)
    second = _run(launch, "rerun", first, "--resume")
    assert _blobs(azure, first)

    assert launch.type("keep", second).code == 0
    typed = launch.type("rm", first, second, "-y")
    assert (typed.code, f"error: {second} is marked as kept" in typed.err) == (3, True)
    typed = launch.type("rm", first, "-y")
    assert (typed.code, f"error: {second} resumed from {first}" in typed.err) == (3, True)
    assert launch.type("keep", "--undo", second).code == 0

    typed = launch.type("rm", first, second, "-y", "--json")
    assert typed.code == 0, typed.err
    told = json.loads(typed.out)
    assert (told["runs"], told["bytes"] > 1000) == ([second, first], True)
    assert (_blobs(azure, first), _blobs(azure, second)) == ([], [])
    assert launch.run_dirs() == []
    assert [each["id"] for each in json.loads(launch.type("ls", "--json").out)] == []
    assert launch.type("rm", first, "-y").code == 102


def test_a_removal_that_was_cut_off_is_ended_by_the_next(azure: FakeAzure, tmp_path: Path) -> None:
    launch = AzureLaunch(azure, tmp_path)
    run = _run(launch, "run", launch.write_job(PROGRAM, code=".", outputs={"model": {}}))
    azure.script(forbidden(path=f"*/jobs/{run}", times=1))  # its look-up
    typed = launch.type("rm", run, "-y")
    assert (typed.code, f"error: {run} is not removed: " in typed.err) == (1, True)
    assert [each.name for each in launch.run_dirs()] == [f".removed-{run}"]
    listed = json.loads(launch.type("ls", "--json").out)
    assert [each["id"] for each in listed] == [run]  # Azure ML has it still

    azure.troubles.clear()
    typed = launch.type("rm", run, "-y")
    assert typed.code == 0, typed.err
    assert (_blobs(azure, run), launch.run_dirs()) == ([], [])
    assert json.loads(launch.type("ls", "--json").out) == []


def _run(launch: AzureLaunch, *words: str | Path) -> str:
    typed = launch.type(*words, "-y", "--no-fetch")
    assert typed.code == 0, typed.err
    return typed.out.split()[0]


def _blobs(azure: FakeAzure, run: str) -> list[str]:
    storage = azure.environment()["storage"]
    account, container = storage["account"], storage["containers"]["runs"]
    prefixes = (f"{run}/", f"checkpoints/{run}/")
    return [name for each in prefixes for name in azure.blobs.names(account, container, each)]


def test_prune_removes_old_runs_of_this_machine(azure: FakeAzure, tmp_path: Path) -> None:
    launch = AzureLaunch(azure, tmp_path)
    # Whatever the real cache holds is no concern of a test.
    launch.environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    job = launch.write_job(PROGRAM, code=".", outputs={"model": {}})
    first, second = _run(launch, "run", job), _run(launch, "run", job, "--set", "name=second")
    other = AzureLaunch(azure, _made(tmp_path / "other"))
    other.environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    words = ("prune", "--older", "0s", "--keep", "1", "--json", "-y")
    told = json.loads(other.type(*words).out)
    assert (told["goes"], told["stays"], told["bytes"]) == ([], [], 0)

    typed = launch.type(*words)
    assert typed.code == 0, typed.err
    told = json.loads(typed.out)
    assert [each["name"] for each in told["goes"]] == [first]
    assert {each["name"]: each["reason"] for each in told["stays"]} == {second: "of the newest 1"}
    assert (_blobs(azure, first), bool(_blobs(azure, second))) == ([], True)
    assert [each.name for each in launch.run_dirs()] == [second]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
