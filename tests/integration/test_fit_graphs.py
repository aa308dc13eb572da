"""Keras's `fit` makes the graphs of a step and of an evaluation once a training, as the TensorFlow loop does.

A graph that is made anew in each epoch costs seconds of it, and nothing else shows it but a clock.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import needs

REPO = Path(__file__).parents[2]
# Counts how often Python runs through each function, which a graph that is there does not.
PROGRAM = """
import contextlib, io, json, sys
import trainer.tf.resnet50, trainer.tfkeras.model
from tests.integration.programs import tf_tiny

found = {}
for framework, module in (("tf", trainer.tf.resnet50), ("keras", trainer.tfkeras.model)):
    counts = found[framework] = {"make_step": 0, "make_score": 0}
    for name in counts:
        def counted(*given, name=name, make=getattr(module, name)):
            made = make(*given)
            def call(element):
                counts[name] += 1
                return made(element)
            return call
        setattr(module, name, counted)
    with contextlib.redirect_stdout(io.StringIO()):
        code = tf_tiny.main([framework, "statistics", *sys.argv[1:], "--output-dir", framework])
    assert code == 0, code
print(json.dumps(found))
"""
TRAINING = ("--data", "random", "--num-images", "12", "--batch-per-rank", "4", "--epochs", "3")


@pytest.mark.timeout(300)
def test_three_epochs_and_evaluations_make_each_graph_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [needs.runtime("tensorflow"), "-c", PROGRAM, *TRAINING, "--image-size", "32"],
        env={
            **os.environ,
            "PYTHONPATH": str(REPO),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    once = {"make_step": 1, "make_score": 1}
    assert json.loads(done.stdout.splitlines()[-1]) == {"tf": once, "keras": once}
