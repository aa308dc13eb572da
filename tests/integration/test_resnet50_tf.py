"""The ResNet-50 programs of TensorFlow and Keras on real JPEGs and two real ranks of Horovod."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.contracts.spec import RunState
from tests import needs
from tests.fakes.gangs import Gangs
from tests.fakes.picture_runs import call_each
from trainer.common.sharding import shuffled_batches

REPO = Path(__file__).parents[2]
TINY = "tests.integration.programs.tf_tiny"
PROGRAMS = ("trainer.tf.resnet50", "trainer.tfkeras.resnet50")
SET = ("--data", "synthetic", "--image-size", "32", "--num-images", "320", "--num-classes", "4")
# Twenty steps, as large as the made set bears: most of a step is for 25 million weights.
RECIPE = ("--batch-per-rank", "16", "--epochs", "2", "--warmup-epochs", "1", "--lr", "0.1")
# 0.94 where it was written; one picture of the 80 is 0.0125, and processors round otherwise.
STATED_TOP1 = 0.85
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


# Two trainings of up to 540 s belong to the first test.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def python() -> Path:
    return needs.runtime("tensorflow")


@pytest.fixture(scope="module")
def summaries(python, tmp_path_factory) -> Iterator[dict[str, dict[str, Any]]]:
    """What both programs say of the same training on two ranks."""
    gangs = Gangs(tmp_path_factory.mktemp("workspace"), interpreter=python)
    found: dict[str, dict[str, Any]] = {}
    for program in PROGRAMS:
        handle = gangs.submit(
            ["python", "-m", program, *SET, *RECIPE],
            launcher="horovod",
            processes_per_node=2,
            code=str(REPO),
            code_only=("trainer",),
            outputs=("model",),
            hang_s=240.0,
            env={"OMP_NUM_THREADS": "1", **QUIET},
        )
        status = gangs.wait(handle, 540)
        assert status.state is RunState.COMPLETED, (status, gangs.texts(handle, 0))
        run_dir = Path(handle.run_dir)
        found[program] = json.loads((run_dir / "summary.json").read_text())
        assert (run_dir / "outputs" / "model" / "resnet50.safetensors").stat().st_size > 90e6
        assert list((run_dir / "outputs" / "tensorboard").iterdir())
        assert gangs.texts(handle, 1) == []  # only rank 0 talks
    yield found
    gangs.end()


@pytest.mark.faults
@pytest.mark.parametrize("program", PROGRAMS)
def test_two_ranks_learn_the_made_set(summaries, program):
    summary = summaries[program]
    fixed = ("program", "strategy", "world_size", "device", "batch_size", "parameters")
    assert [summary[key] for key in fixed] == [program, "horovod", 2, "cpu", 32, 23_516_228]
    assert (summary["train_images"], summary["val_images"]) == (320, 80)
    assert summary["val_top1"] >= STATED_TOP1
    assert summary["images_per_s"] > 0


@pytest.mark.faults
def test_both_programs_and_all_ranks_end_with_equal_weights(summaries):
    digests = [digest for summary in summaries.values() for digest in summary["weights_sha256"]]
    assert len(digests) == 4
    assert len(set(digests)) == 1


OTHER_CLUSTER = {
    "cluster": {"worker": ["127.0.0.1:9", "127.0.0.1:10"]},
    "task": {"type": "worker", "index": 1},
}


def make_set(folder: Path, *, val_classes: tuple[str, ...] = ("a", "b")) -> Path:
    from PIL import Image

    for split, classes in (("train", ("a", "b")), ("val", val_classes)):
        for name in classes:
            (folder / split / name).mkdir(parents=True)
            for number in range(4):
                picture = Image.new("RGB", (40, 36), (60 * number, 20, 200))
                picture.save(folder / split / name / f"{number}.jpg")
    return folder


def test_a_mistake_is_one_line_that_says_what_to_do(tensorflow_zygote, tmp_path):
    broken = make_set(tmp_path / "broken")
    # In the last batch, which Keras asks for in a thread of TensorFlow's.
    *_, (last, _) = shuffled_batches(8, 2, seed=1, epoch=1)
    torn = broken / "train" / "ab"[last // 4] / f"{last % 4}.jpg"
    torn.write_bytes(torn.read_bytes()[:200])
    other = make_set(tmp_path / "other", val_classes=("a", "c"))
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"\x05" + bytes(20))
    loop, fit = PROGRAMS
    small = ["--image-size", "32", "--batch-per-rank", "2", "--epochs", "1"]
    two = {"WORLD_SIZE": "2", "RANK": "0"}
    none = ["--max-corrupt", "0"]
    cases = [
        ([loop, ["--epochs", "0"], {}], 2, "--epochs must be above 0, not 0"),
        ([fit, ["--batch-per-rank", "1"], {}], 2, "--batch-per-rank must be 2 or more, not 1"),
        ([loop, [], {}], 1, "error: no input `imagenet` was handed to this run"),
        ([loop, ["--data", "/nowhere"], {}], 1, "error: no folder `/nowhere/train`"),
        ([loop, ["--strategy", "single"], two], 1, "error: strategy single cannot train on 2"),
        ([loop, ["--device", "cuda"], {}], 1, "error: --device cuda, but TensorFlow sees no GPU"),
        (
            [fit, ["--strategy", "mwms"], two],
            1,
            "error: --strategy mwms needs TF_CONFIG with a cluster of workers: no 'TF_CONFIG' (hint",
        ),
        (
            [loop, [], {**two, "TF_CONFIG": json.dumps(OTHER_CLUSTER)}],
            1,
            "error: TF_CONFIG says worker 1 of 2 workers, the launcher says rank 0 of 2 (hint: start",
        ),
        (
            [loop, ["--data", str(other), *small], {}],
            1,
            f"error: `{other}` has other classes in train than in val: b, c in one of them only",
        ),
        (
            [fit, ["--data", str(other.parent / "broken"), "--batch-per-rank", "9"], {}],
            1,
            "error: --batch-per-rank 9 on 1 ranks is a batch of 9, more than the 8 training",
        ),
        *(
            (
                [TINY, [framework, "plain", "--data", str(broken), *small, *none], {}],
                1,
                f"error: `{torn}` is not a complete picture",
            )
            for framework in ("tf", "keras")
        ),
        (
            [loop, ["--data", str(broken), *small, "--weights", str(weights)], {}],
            1,
            f"error: no weights can be read from `{weights}`",
        ),
    ]
    found = call_each(tensorflow_zygote, tmp_path, [case for case, _, _ in cases], env=QUIET)
    for (case, code, message), said in zip(cases, found, strict=True):
        assert (said.code, message in said.last_error) == (code, True), (case, said)
