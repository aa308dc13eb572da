"""TensorFlow's loader gives what PyTorch's gives, in order, from folders and TFRecord alike."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.busy import HANG_S
from tests.fakes.hostile_pictures import hostile_pictures
from trainer.data.synthesize.stripes import make_pictures

REPO = Path(__file__).parents[2]
PYTORCH = "tests.integration.programs.torch_batches"
CHECKS = "tests.integration.programs.tf_loader_checks"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("pictures") / "set"
    make_pictures(made, num_classes=2, num_train=24, num_val=2, size=90, seed=3)
    return made


@pytest.fixture(scope="module")
def found(tensorflow_zygote, folder) -> dict[str, Any]:
    """What the checks found in the runtime.

    They end while batches are on their way, and do not wait for them for ever.
    """
    packed = folder.parent / "packed"
    pack = [sys.executable, "-m", "trainer.data.pack", str(folder), "--to", str(packed)]
    subprocess.run([*pack, "--format", "tfrecord"], check=True, capture_output=True, cwd=REPO)
    env = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    return json.loads(
        tensorflow_zygote.run(CHECKS, str(folder), str(packed), folder=folder.parent, env=env)
    )


def test_batches_come_in_order_whatever_the_number_of_workers(found):
    batches = {**found["batches"]}
    alone, *together = batches.pop("digests")
    del batches["pixels"]
    assert together == [alone, alone]  # of four threads, and of five processes
    assert alone != hashlib.sha256().hexdigest()
    assert batches == {
        "samples": [[3, 20, 2], [], [1, 14]],
        "labels": [[0, 1, 0], [-1, -1, -1], [0, 1, -1]],
        "shapes": [[3, 32, 32, 3]] * 3,
    }


def test_nothing_that_an_epoch_iterates_over_is_tuned(found):
    """Who frees a tuned iterator now and then waits for its tuner's sleep: up to as long as the epoch was."""
    names = ("pictures", "pictures ahead", "noise", "noise ahead")
    assert found["tuned"] == dict.fromkeys(names, False)


def test_our_decoder_gives_pillows_pixels_but_for_rounding(found):
    pillows, fast = (bytes.fromhex(pixels) for pixels in found["batches"]["pixels"])
    assert len(fast) == len(pillows) == 5 * 32 * 32 * 3
    # Pillow rounds a resized pixel in its own way, so equal bytes would be Pillow's.
    assert max(abs(one - other) for one, other in zip(pillows, fast, strict=True)) == 1


def test_pytorch_sees_the_same_pixels_but_for_rounding(found, zygote, folder):
    pillows, fast = (bytes.fromhex(pixels) for pixels in found["batches"]["pixels"])
    theirs = bytes.fromhex(zygote.run(PYTORCH, str(folder), folder=folder.parent))
    assert len(pillows) == len(theirs) == 5 * 32 * 32 * 3
    # Pillow and PyTorch round a resized pixel in their own ways.
    assert max(abs(one - other) for one, other in zip(pillows, theirs, strict=True)) == 1
    assert fast == theirs


@pytest.mark.faults
def test_an_interpreter_that_leaves_batches_on_their_way_ends(folder):
    program = f"import sys; from pathlib import Path; from {CHECKS} import leave; leave(Path(sys.argv[1]))"
    argv = [needs.runtime("tensorflow"), "-c", program, folder]
    environ = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        argv, env=environ, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_epoch_goes_on_where_it_was_left(found):
    whole, resumed, num_batches, num_shards = found["epoch"]
    assert whole == resumed
    assert (num_batches, num_shards) == (6, 1)


def test_every_usual_format_is_three_colours_of_bytes(found):
    colour, grey, printed, png, transparent = found["formats"]
    for pixel in (colour, printed, png, transparent):
        assert pixel == pytest.approx([200, 100, 50], abs=5)
    assert grey == pytest.approx([124, 124, 124], abs=2)


def test_a_file_that_is_no_whole_picture_is_named(found):
    assert set(found["broken"]) == {"empty", "text", "cut", "head", *hostile_pictures()}
    for said in found["broken"].values():
        assert said.startswith("`DIR/train/a/1.jpg` is not a complete picture: ")
        assert said.endswith("(hint: get the file again, or take it away)")


def test_a_corrupt_picture_is_left_out_or_filled_up_to_a_limit(found):
    beyond = found["corrupt"].pop("beyond")
    assert found["corrupt"] == {
        "evaluated": [[[0, 3], [0, 0, -1], [0, 180, 0]], [[2], [0, -1, -1], [120, 0, 0]]],
        "trained": [[[0, 3, 0], [0, 0, 0], [0, 180, 0]], [[2, 2], [0, 0, -1], [120, 120, 0]]],
        "num_skipped": 7,
    }
    assert beyond.startswith(
        "2 corrupt pictures are more than --max-corrupt 1: `DIR/train/a/2.png`"
    )
