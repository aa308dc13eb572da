"""F14 for TensorFlow and Keras: state files of every format that was ever released load."""

from __future__ import annotations

import json
from pathlib import Path

from tests.campaign import campaign

GOLDEN = Path(__file__).parent / "golden"
STATE = "tests.trainer.golden.tensorflow_state"


def test_state_of_format_1(tensorflow_zygote, tmp_path):
    folder = GOLDEN / "checkpoint-format-1"
    env = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    arguments = ("read", str(folder / "tensorflow"))
    told = json.loads(tensorflow_zygote.run(STATE, *arguments, folder=tmp_path, env=env))
    wanted = json.loads((folder / "tensorflow.json").read_text())
    survived = int(told == wanted)
    campaign("F14 checkpoints of format 1, TensorFlow and Keras", tried=1, survived=survived)
    assert told == wanted
