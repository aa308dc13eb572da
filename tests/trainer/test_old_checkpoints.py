"""F14: checkpoints of every format that was ever released load, and mean what they meant."""

from __future__ import annotations

import json
from pathlib import Path

from tests.campaign import campaign
from trainer.common.checkpoint import Checkpoint, CheckpointFolder
from trainer.common.manifest import FORMAT

GOLDEN = Path(__file__).parent / "golden"
READER = "tests.trainer.golden.read_pytorch"


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


def test_pytorch_state_of_format_1(zygote, tmp_path):
    folder = GOLDEN / "checkpoint-format-1"
    told = json.loads(zygote.run(READER, str(folder / "pytorch"), folder=tmp_path))
    wanted = json.loads((folder / "pytorch.json").read_text())
    campaign("F14 checkpoints of format 1, PyTorch", tried=1, survived=int(told == wanted))
    assert told == wanted
