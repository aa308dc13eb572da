"""TensorFlow's loop and Keras's `fit` make a step's graph once, and find the largest batch that fits a GPU."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

import pytest

from tests.fakes.torch_ranks import Zygote

CHECKS = "tests.integration.programs.tf_steps_checks"
FRAMEWORKS = ("tf", "keras")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def found(tensorflow_zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tf_steps_checks.py found."""
    env = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    folder = tmp_path_factory.mktemp("steps")
    return json.loads(tensorflow_zygote.run(CHECKS, folder=folder, env=env).splitlines()[-1])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_three_epochs_and_evaluations_make_each_graph_once(found, framework):
    """A graph that is made anew in each epoch costs seconds of it, and only a clock would show it."""
    assert found["graphs"][framework] == {"make_step": 1, "make_score": 1}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_so_many_steps_as_asked_are_profiled(found, framework):
    assert found["profiled"][framework] == "9 steps"


@pytest.mark.parametrize(("framework", "num_counted"), [("tf", 6), ("keras", 5)])
def test_the_wait_for_each_batch_is_counted(found, framework, num_counted):
    """Keras's `fit` makes the graph within the first step, which is no wait for data."""
    waits = found["waits"][framework]
    assert len(waits) == num_counted
    # The source takes 0.2 s for each, and reads one ahead while a step is taken.
    assert median(waits) > 0.1


def test_a_profiler_that_runs_already_is_told_and_ends_nothing(found):
    assert set(found["unprofiled"].values()) == {"the profile could not be begun"}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_largest_batch_that_fits_is_searched_by_steps(found, framework):
    searched = found["searched"][framework]
    # Two steps of what fits, one of what does not.
    assert searched.pop("tried") == [2, 2, 4, 4, 8, 6, 5, 5]
    # cuDNN says in words of its own that none of its algorithms had memory.
    assert searched.pop("cuDNN") == searched["predict"]
    assert searched == {
        "on a CPU": [
            1,
            "error: --find-batch tries steps on one GPU (hint: one rank, and --device cuda)",
        ],
        "search": [0, "the largest --batch-per-rank that fits is 5"],
        "summary": {
            "program": f"tiny-{framework}",
            "largest_batch": 5,
            "beyond": 6,
            "is_bound_of_search": False,
        },
        "train": [
            1,
            "error: the GPU's memory does not hold a step of --batch-per-rank 6 "
            "(hint: --find-batch finds a --batch-per-rank that fits)",
        ],
        "predict": [
            1,
            "error: the GPU's memory does not hold the network and the files that it predicts at once "
            "(hint: `nvidia-smi` tells whether another process has memory of this GPU)",
        ],
    }
