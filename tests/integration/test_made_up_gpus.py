"""What only GPUs make PyTorch programs meet, of GPUs that are made up: memory, units, events."""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What made_up_gpus.py found."""
    program = "tests.integration.programs.made_up_gpus"
    return json.loads(zygote.run(program, folder=tmp_path_factory.mktemp("gpus")))


def test_too_little_memory_is_known_by_each_librarys_words(found):
    """cuDNN's, where no algorithm found room, ended a search by a traceback."""
    said = [False, "the GPU's memory does not hold a step (hint: a smaller one)"]
    assert [found["lacks"][name] for name in ("torch", "cuDNN", "cuBLAS", "CUDA")] == [said] * 4
    other = "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"
    assert found["lacks"]["other"] == [other] * 2


def test_bf16_is_refused_on_a_gpu_that_only_emulates_it(found):
    message = "Tesla T4 has no units for bf16 (hint: --precision fp16)"
    assert found["units"] == {"cuda, bf16, False": message}


def test_every_step_of_a_gpu_counts_once_it_has_ended(found):
    """Only the newest 16 did. A step's kernels take as many seconds as its number, and one more."""
    assert found["events"]["first"] == {"compute_s": 18.0, "exchange_s": 0.0}
    assert found["events"]["last"] == {"compute_s": 38.0, "exchange_s": 0.0}
    # Nothing is told of it, so nothing is kept.
    assert (found["events"]["shared"], found["events"]["waiting"]) == ({}, 0)
