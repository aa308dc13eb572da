"""F14 for TensorFlow and Keras: state files of every format that was ever released load."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from jobs.images.runtimes import PROJECT
from tests import needs
from tests.campaign import campaign

GOLDEN = Path(__file__).parent / "golden"


def test_state_of_format_1():
    python = needs.runtime("tensorflow")
    folder = GOLDEN / "checkpoint-format-1"
    done = subprocess.run(
        [python, GOLDEN / "tensorflow_state.py", "read", folder / "tensorflow"],
        env={**os.environ, "PYTHONPATH": str(PROJECT), "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    survived = int(not done.returncode)
    campaign("F14 checkpoints of format 1, TensorFlow and Keras", tried=1, survived=survived)
    assert done.returncode == 0, done.stderr
    wanted = json.loads((folder / "tensorflow.json").read_text())
    assert json.loads(done.stdout) == wanted
