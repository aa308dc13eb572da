"""F14: checkpoints of every format that was ever released load, and mean what they meant."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from jobs.images.runtimes import PROJECT
from tests import needs
from tests.campaign import campaign
from trainer.common.checkpoint import Checkpoint, CheckpointFolder
from trainer.common.manifest import FORMAT

GOLDEN = Path(__file__).parent / "golden"


def refuse(text: str) -> None:
    raise AssertionError(text)


def test_every_format_there_was_has_its_golden_files():
    formats = [f"checkpoint-format-{number}" for number in range(1, FORMAT + 1)]
    assert sorted(path.name for path in GOLDEN.glob("checkpoint-format-*")) == formats


def test_manifest_and_files_of_format_1():
    found = CheckpointFolder(GOLDEN / "checkpoint-format-1" / "protocol").newest(refuse)
    campaign("F14 checkpoints of format 1, protocol", tried=1, survived=int(found is not None))
    assert found == Checkpoint(
        name="step-000000120-16d06286",
        step=120,
        about={"position": {"step": 120, "epoch": 3, "batch": 20}, "name": "naïve", "lr": 1e-05},
        files={"weights.bin": bytes(range(256)), "empty.bin": b"", "state.json": b'{"lr": 0.1}\n'},
    )


def test_pytorch_state_of_format_1():
    python = needs.runtime("pytorch")
    folder = GOLDEN / "checkpoint-format-1"
    done = subprocess.run(
        [python, GOLDEN / "read_pytorch.py", folder / "pytorch"],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    campaign("F14 checkpoints of format 1, PyTorch", tried=1, survived=int(not done.returncode))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((folder / "pytorch.json").read_text())
