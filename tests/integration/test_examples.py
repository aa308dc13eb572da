"""The examples run as their README says: on two ranks, through `launch`, to the figure that they state."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from jobs.images.runtimes import PROJECT
from tests import needs
from tests.fakes import typed_launch
from tests.fakes.gangs import make_environment
from tests.fakes.torch_ranks import Zygote, start_gang

EXAMPLES = PROJECT / "examples"
FORKED = "tests.integration.programs.forked_example"


@dataclass(frozen=True, kw_only=True)
class Example:
    """What an example runs in, how much it prints, and which model it leaves."""

    image: str
    figure: str
    num_epochs: int
    model: str
    tolerance: float


NAMED = {
    "hf-like": Example(
        image="pytorch",
        figure="accuracy",
        num_epochs=4,
        model="model.safetensors",
        tolerance=0.03,
    ),
    "own-ddp": Example(
        image="pytorch", figure="accuracy", num_epochs=10, model="rings.pt", tolerance=0.01
    ),
    "own-horovod": Example(
        image="pytorch", figure="rmse", num_epochs=20, model="sine.pt", tolerance=0.01
    ),
    "own-keras": Example(
        image="tensorflow", figure="accuracy", num_epochs=5, model="clouds.keras", tolerance=0.01
    ),
}
ONE_A_FRAMEWORK = {"own-ddp", "own-keras"}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The file of a local environment: one node of two processes that cost nothing."""
    made = make_environment(tmp_path / "workspace", nodes=1, processes=2)
    free = msgspec.structs.replace(made.clusters["cpu"], price_per_node_hour=0.0)
    path = tmp_path / "environment.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(made, clusters={"cpu": free})))
    return path


def require(image: str) -> None:
    needs.runtime(image)


def launch(environment: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Type a command in the example's folder."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return typed_launch.launch(folder, *words, "--env", environment, environ=environ)


def run(environment: Path, name: str, *words: str, num_ranks: int) -> tuple[Path, float]:
    """Run an example; give the run's folder and its final figure."""
    example = NAMED[name]
    done = launch(environment, EXAMPLES / name, "run", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    folder = environment.parent / "workspace" / "runs" / done.stdout.splitlines()[0]
    said = rf"^\[0\] final {example.figure} ([0-9.]+) \(ranks: {num_ranks}\)$"
    found = re.search(said, done.stdout, re.MULTILINE)
    assert found, done.stdout
    return folder, float(found[1])


def stated(name: str) -> float:
    """The figure that the example's README shows."""
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"final {NAMED[name].figure} ([0-9.]+) \(ranks: 2\)", text)
    assert found
    return float(found[1])


def test_every_example_is_run_here_and_listed() -> None:
    folders = {each.name for each in EXAMPLES.iterdir() if each.is_dir()}
    # Those beside them have tests of their own: test_own_image.py, where podman is, test_own_model.py.
    assert folders == {*NAMED, "own-image", "own-model"}
    listed = re.findall(r"^\| \[([a-z-]+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(folders)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ONE_A_FRAMEWORK else pytest.param(name, marks=pytest.mark.faults)
        for name in NAMED
    ],
)
def test_an_example_ends_on_two_ranks_with_the_figure_that_it_states(
    environment: Path, name: str
) -> None:
    require(NAMED[name].image)
    folder, figure = run(environment, name, "job.yaml", num_ranks=2)
    require_stated(name, figure, folder, folder / "outputs" / "model")
    report = launch(environment, EXAMPLES / name, "report", "last", "--json")
    assert report.returncode == 0, report.stderr
    assert '"state": "completed"' in report.stdout


def require_stated(name: str, figure: float, folder: Path, models: Path) -> None:
    """Require the figure that the README states, as the last of each epoch's, and a model."""
    example = NAMED[name]
    assert figure == pytest.approx(stated(name), abs=example.tolerance)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    values = [each for each in metrics if (each["split"], each["name"]) == ("test", example.figure)]
    assert [each["epoch"] for each in values] == list(range(1, example.num_epochs + 1))
    assert values[-1]["value"] == pytest.approx(figure, abs=1e-4)
    assert (models / example.model).stat().st_size > 500


def test_the_ddp_example_ends_on_two_forks_with_the_figure_that_it_states(
    zygote: Zygote, tmp_path: Path
) -> None:
    """It ends in an error itself where its ranks hold different weights."""
    models = tmp_path / "model"
    env = {"TRAINYARD_OUTPUT_MODEL": str(models)}
    argv = [FORKED, str(EXAMPLES / "own-ddp" / "train.py")]
    gang = start_gang(zygote, argv, strategy="ddp", size=2, folder=tmp_path, env=env)
    assert gang.wait(300) == [0, 0], gang.texts()
    gang.end()
    found = re.search(r"^final accuracy ([0-9.]+) \(ranks: 2\)$", gang.texts()[0], re.MULTILINE)
    assert found, gang.texts()
    require_stated("own-ddp", float(found[1]), tmp_path, models)


@pytest.mark.faults
def test_a_script_without_its_job_file_trains_the_same_on_one_rank(environment: Path) -> None:
    require("pytorch")
    words = ("train.py", "--processes-per-node", "1")
    _, figure = run(environment, "own-ddp", *words, num_ranks=1)
    assert figure == pytest.approx(stated("own-ddp"), abs=0.01)


@pytest.mark.parametrize("name", NAMED)
def test_the_scripts_job_is_that_of_the_job_file(environment: Path, name: str) -> None:
    specs = [
        json.loads(launch(environment, EXAMPLES / name, "plan", job, "--json").stdout)["spec"]
        for job in ("job.yaml", "train.py")
    ]
    decided = (
        "image",
        "launcher",
        "code",
        "nodes",
        "processes_per_node",
        "outputs",
        "requirements",
    )
    assert [specs[0].get(key) for key in decided] == [specs[1].get(key) for key in decided]
    assert specs[0]["command"][:2] == specs[1]["command"] == ["python", "train.py"]
