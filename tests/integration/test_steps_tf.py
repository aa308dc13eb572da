"""TensorFlow's loop and Keras's `fit` make a step's graph once, and find the largest batch that fits a GPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import needs

REPO = Path(__file__).parents[2]
FRAMEWORKS = ("tf", "keras")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tf_steps_checks.py found."""
    done = subprocess.run(
        [needs.runtime("tensorflow"), "-m", "tests.integration.programs.tf_steps_checks"],
        env={
            **os.environ,
            "PYTHONPATH": str(REPO),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
        cwd=tmp_path_factory.mktemp("steps"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_three_epochs_and_evaluations_make_each_graph_once(found, framework):
    """A graph that is made anew in each epoch costs seconds of it, and only a clock would show it."""
    assert found["graphs"][framework] == {"make_step": 1, "make_score": 1}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_largest_batch_that_fits_is_searched_by_steps(found, framework):
    searched = found["searched"][framework]
    # Two steps of what fits, one of what does not.
    assert searched.pop("tried") == [2, 2, 4, 4, 8, 6, 5, 5]
    assert searched == {
        "on a CPU": [
            1,
            "error: --find-batch tries steps on one GPU (hint: one rank, and --device cuda)",
        ],
        "search": [0, "the largest --batch-per-rank that fits is 5"],
        "summary": {"program": f"tiny-{framework}", "largest_batch": 5},
        "train": [
            1,
            "error: the GPU's memory does not hold a step of --batch-per-rank 6 "
            "(hint: --find-batch tells the largest --batch-per-rank that fits)",
        ],
    }
