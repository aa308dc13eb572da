"""Trainings of the demo's pictures on the stand-in Azure, typed as a practitioner types them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.contracts.spec import RunHandle, RunState
from tests.fakes.azure_launch import AzureLaunch, Typed
from tests.fakes.azureml import FakeAzure, JobTrouble
from tests.fakes.gangs import Gangs
from tests.fakes.picture_runs import read_run

ROOT = Path(__file__).parents[3]
IMAGES = {"pytorch": f"registry.azurecr.io/pytorch@sha256:{'a' * 64}"}
MODEL = "outputs/model/mnist.safetensors"
RUN_TIMEOUT_S = 300
# What two trainings of the same pictures, with the same seed and as many ranks, do not share.
TIMES = {"images_per_s", "train_s", "data_wait_s", "checkpoint_blocking_s"}
# More threads than idle cores wait for each other: beside other tests that costs minutes. And no
# MLflow: the stand-in does not serve it.
ENVIRON = {"OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": ""}


@pytest.fixture(scope="module")
def launch(standing_azure: FakeAzure, tmp_path_factory: pytest.TempPathFactory) -> AzureLaunch:
    """A practitioner who has prepared the demo's pictures and pushed them to the stack's store."""
    made = AzureLaunch(standing_azure, tmp_path_factory.mktemp("practitioner"), images=IMAGES)
    type_well(made, "data", "prepare", "digits", "--to", "digits", with_environment=False)
    type_well(made, "data", "push", "digits", "digits")
    return made


@pytest.fixture(scope="module")
def gangs(runtimes: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gangs]:
    """The local engine, for the same trainings on this machine."""
    made = Gangs(tmp_path_factory.mktemp("local"), interpreter=runtimes["pytorch"])
    yield made
    made.end()


def type_well(launch: AzureLaunch, *words: str, with_environment: bool = True) -> Typed:
    typed = launch.type(*words, with_environment=with_environment)
    assert typed.code == 0, (words, typed.out, typed.err)
    return typed


def run_on_azure(launch: AzureLaunch, *words: str) -> tuple[Path, Typed]:
    """Type `launch run digits` on two nodes and wait for its end; gives what came home."""
    settings = (f"env.{name}={json.dumps(value)}" for name, value in ENVIRON.items())
    changes = (*settings, "inputs.digits.mode=mount")
    typed = type_well(
        launch,
        *("run", "digits", "--yes", "--nodes", "2", *words),
        *(word for change in changes for word in ("--set", change)),
    )
    return launch.folder / typed.out.split()[0], typed


def run_here(launch: AzureLaunch, gangs: Gangs, *arguments: str, launcher: str) -> Path:
    """Train on the same pictures with the local engine; gives the run's folder."""
    program = ("python", "-m", "trainer.pytorch.mnist", "--data", str(launch.folder / "digits"))
    handle: RunHandle = gangs.submit(
        [*program, *arguments],
        launcher=launcher,
        code=str(ROOT),
        code_only=("trainer",),
        outputs=("model",),
        env=ENVIRON,
    )
    status = gangs.wait(handle, RUN_TIMEOUT_S)
    assert status.state is RunState.COMPLETED, (status, gangs.texts(handle, 0))
    return Path(handle.run_dir)


def summary_of(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "summary.json").read_text())
    return {name: value for name, value in found.items() if name not in TIMES}


@pytest.mark.faults
def test_the_demos_job_learns_on_azure_what_it_learns_here(
    launch: AzureLaunch, gangs: Gangs
) -> None:
    """Horovod by mpirun on two nodes there, by Gloo on one machine here."""
    home, _ = run_on_azure(launch)
    job = launch.azure.job(home.name)
    assert (job.spec.launch.kind, job.spec.launch.num_processes) == ("Mpi", 2)
    given = job.spec.inputs["digits"]
    assert (job.spec.num_nodes, getattr(given, "mode", given)) == (2, "ReadOnlyMount")
    arguments = ("--epochs", "8", "--batch-size", "64", "--seed", "1")
    here = run_here(launch, gangs, "--strategy", "horovod", *arguments, launcher="horovod")
    assert summary_of(home) == summary_of(here)
    assert summary_of(home)["test_accuracy"] > 0.9
    assert (home / MODEL).read_bytes() == (here / MODEL).read_bytes()


@pytest.mark.faults
def test_a_training_that_azure_takes_back_ends_as_if_nothing_had_been(
    launch: AzureLaunch, gangs: Gangs
) -> None:
    """Preempted after step 200 of 250, submitted anew by `launch run`, resumed on its own."""
    arguments = {"epochs": "5", "batch-size": "29", "checkpoint-every": "30", "strategy": "ddp"}
    launch.azure.script(JobTrouble(what="preempted", when="epoch 4/5 +test"))
    home, typed = run_on_azure(
        launch,
        *("--set", "launcher=torch", "--set", "retry.max=1"),
        *(word for name, value in arguments.items() for word in ("--set", f"args.{name}={value}")),
    )
    assert "attempt 2 of at most 2 is submitted" in typed.err
    words = [word for name, value in arguments.items() for word in (f"--{name}", value)]
    undisturbed = run_here(launch, gangs, *words, "--seed", "1", launcher="torch")
    found, wanted = summary_of(home), summary_of(undisturbed)
    assert 0 < found.pop("resumed_from_step") < 250
    saved = (found.pop("checkpoints_saved"), wanted.pop("checkpoints_saved"))
    assert 0 < saved[0] < saved[1]
    assert wanted.pop("resumed_from_step") is None
    stored = launch.azure.blobs.names(launch.azure.place.data_account, "runs", "checkpoints/")
    assert any(name.startswith(f"checkpoints/{home.name}/step-000000240-") for name in stored)
    assert found == wanted
    assert (home / MODEL).read_bytes() == (undisturbed / MODEL).read_bytes()
    assert "earlier metrics cannot be read" not in typed.out
    curves = [set(read_run(each).curve("test", "accuracy")) for each in (home, undisturbed)]
    assert curves[0] <= curves[1]
