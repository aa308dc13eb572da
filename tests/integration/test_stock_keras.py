"""Horovod's own forms for Keras train one model on two ranks, on Keras 2 and on Keras 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.contracts.spec import DatasetVersion, InputSpec, RunState
from jobs.rank.keras_home import lay_keras_home
from jobs.rank.world import World
from tests.fakes.gangs import Gangs
from tests.fakes.torch_ranks import Zygote, start_gang

PROGRAMS = Path(__file__).with_name("programs")
FORKED = "tests.integration.programs.forked_keras"
MNIST = DatasetVersion(name="keras-mnist", version=1, digest="ab" * 32, files=1, bytes=1)
FORMS = (
    "old argument",
    "data of keras",
    "callbacks",
    "passes",
    "eager tape",
    "tape in a function",
    "grouped tape",
    "loaded .keras",
    "loaded .h5",
)
HINT = "hint: set `image: tensorflow-keras2` in the job file, or remove the argument"
# What the warm-up over two epochs and the schedule after it come to, epoch by epoch.
RATES = [0.03, 0.04, 0.04, 0.004]


@pytest.mark.parametrize(
    ("gangs_of", "module", "told_of_old_argument"),
    [
        ("tensorflow_gangs", "horovod.tensorflow.keras", HINT),
        pytest.param("tensorflow_gangs", "horovod.keras", HINT, marks=pytest.mark.faults),
        ("keras2_gangs", "horovod.tensorflow.keras", "taken"),
    ],
)
def test_every_form_trains_one_model_on_two_ranks(
    request: pytest.FixtureRequest, gangs_of: str, module: str, told_of_old_argument: str
) -> None:
    gangs: Gangs = request.getfixturevalue(gangs_of)
    images = lay_mnist(gangs.workspace)
    handle = gangs.submit(
        ["python", "stock_keras.py", module],
        launcher="horovod",
        code=str(PROGRAMS),
        code_only=("stock_keras.py",),
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
        inputs={"keras": InputSpec(dataset=MNIST, mode="download")},
    )
    status = gangs.wait(handle, 240)
    assert status.state is RunState.COMPLETED, (status, gangs.texts(handle, 0)[-20:])
    texts = [gangs.texts(handle, rank) for rank in (0, 1)]
    check_forms(Path(handle.run_dir), texts, images, told_of_old_argument)


def test_every_form_trains_one_model_on_two_forks(
    tensorflow_zygote: Zygote, tmp_path: Path
) -> None:
    images, homes = lay_mnist(tmp_path), tmp_path / "homes"
    (source,) = (tmp_path / "inputs").iterdir()
    for rank in (0, 1):
        world = World(rank, 2, rank, 2, 0, "127.0.0.1", "1")
        assert lay_keras_home(str(source), f"{homes}/{rank}", world)
    gang = start_gang(
        tensorflow_zygote,
        [FORKED, "horovod.tensorflow.keras"],
        strategy="horovod",
        size=2,
        folder=tmp_path,
        env={
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TRAINYARD_INPUT_KERAS": str(source),
            "HOMES": str(homes),
        },
    )
    assert gang.wait(240) == [0, 0], gang.texts()
    gang.end()
    check_forms(tmp_path, [text.splitlines() for text in gang.texts()], images, HINT)


def check_forms(
    run_dir: Path, texts: list[list[str]], images: np.ndarray, told_of_old_argument: str
) -> None:
    """Require that both ranks hold one model of each form, which is the one that comes out by hand."""
    first, second = (read_results(run_dir, rank) for rank in (0, 1))
    assert tuple(first) == FORMS
    for form in FORMS:
        assert first[form] == second[form], form
    assert first["data of keras"] == {"images": images.tolist(), "labels": [7, 8]}
    assert first["old argument"].endswith(told_of_old_argument)
    history = first["callbacks"]["history"]
    assert history["lr"] == pytest.approx(RATES)
    told = "Epoch 2: finished gradual learning rate warmup to 0.04."
    assert [told in each for each in texts] == [True, False]
    rates = [rate for epoch in range(4) for rate in rates_of_epoch(epoch)]
    trained, losses = train(rates)
    assert first["callbacks"]["weights"] == pytest.approx(trained, abs=1e-5)
    assert history["loss"] == pytest.approx(losses, abs=1e-5)
    expected, _ = train([0.04] * 4)
    for form in ("eager tape", "tape in a function", "grouped tape"):
        assert first[form]["weights"] == pytest.approx(expected, abs=1e-5)
    loaded = [first[form] for form in ("loaded .keras", "loaded .h5")]
    assert loaded[0] == loaded[1]
    assert any(loaded[0]["momenta"][-1])
    assert loaded[0]["weights"] != loaded[0]["before"]


def lay_mnist(workspace: Path) -> np.ndarray:
    """Put a small MNIST where a run finds a version that has been downloaded; gives its pictures."""
    folder = workspace / "inputs" / MNIST.digest / "datasets"
    folder.mkdir(parents=True)
    images, labels = np.arange(8, dtype=np.uint8).reshape(2, 2, 2), np.array([7, 8], np.uint8)
    splits = {
        f"{kind}_{split}": {"x": images, "y": labels}[kind]
        for kind in "xy"
        for split in ("train", "test")
    }
    np.savez(folder / "mnist.npz", **splits)
    return images


def read_results(run_dir: Path, rank: int) -> dict[str, Any]:
    return json.loads((run_dir / "outputs" / f"{rank}.json").read_text(encoding="utf-8"))


def rates_of_epoch(epoch: int) -> list[float]:
    if epoch >= 2:
        return [0.04 * 0.1 ** (epoch - 2)] * 4
    return [0.02 * (1 + (epoch + step / 4 + 1 / 4) / 2) for step in range(4)]


def train(rates: list[float]) -> tuple[list[float], list[float]]:
    """Compute by hand what two ranks come to: the weights, and the mean loss of each epoch."""
    data = [np.random.default_rng(rank).normal(size=(32, 3)) for rank in (0, 1)]
    weights = [np.full((3, 1), rank + 1.0) for rank in (0, 1)]
    losses: list[float] = []
    for step, rate in enumerate(rates):
        rows = slice(8 * (step % 4), 8 * (step % 4) + 8)
        gradient = np.zeros((3, 1))
        for rank in (0, 1):
            inputs = data[rank][rows]
            errors = inputs @ weights[rank] - 3 * inputs.sum(axis=1, keepdims=True)
            losses.append(float(np.mean(errors**2)))
            gradient += 2 * inputs.T @ errors / 8 / 2
        weights = [each - rate * gradient for each in weights]
        if step == 0:
            weights[1] = weights[0].copy()
    return weights[0].ravel().tolist(), [
        float(np.mean(losses[i : i + 8])) for i in range(0, len(losses), 8)
    ]
