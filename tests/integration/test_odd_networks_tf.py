"""TensorFlow's and Keras's programs train networks with integer weights, frozen parts and scores in half precision."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.picture_runs import call
from tests.fakes.torch_ranks import Zygote, start_gang

PROGRAM = "tests.integration.programs.tf_odd_network"
RUN_S = 240.0
QUIET = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
SIZES = ("--data", "random", "--num-images", "16", "--num-classes", "4", "--image-size", "32")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def state(tensorflow_zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tf_odd_network.py found of the network's state."""
    folder = tmp_path_factory.mktemp("state")
    said = tensorflow_zygote.run(PROGRAM, "state", folder=folder, env=QUIET)
    return json.loads(said.splitlines()[-1])


def test_seeds_are_written_to_generators_and_to_no_integer_weight(state):
    assert state["seeded"] == [{"known/count": 0, "counter/seen": 0}, 2, True]


def test_weights_of_a_frozen_part_are_no_statistics_that_ranks_differ_in(state):
    norm = ("bn/moving_mean", "bn/moving_variance")
    assert state["statistics"] == ["known/mean", "known/variance", *norm]


def test_equal_statistics_of_three_ranks_stay_what_they_are(state):
    """As those of a part that is frozen are: a third of a sum in fp32 is another number."""
    assert state["averaged"] == 20


def test_checkpoints_of_earlier_versions_load_and_those_of_another_network_do_not(state):
    """Earlier ones hold integer and frozen weights twice, as a rank's own, too; the model's file decides."""
    refused = (
        "the checkpoint is of another network: what ranks differ in does not fit "
        "(hint: another --checkpoint-dir)"
    )
    assert state["of_earlier"] == [
        {"known/count": 0, "counter/seen": 0},
        [7, 8],
        [*range(6), *range(30, 38)],
        [refused] * 2,
    ]


def test_integer_weights_go_on_where_another_number_of_ranks_left_off(tensorflow_zygote, tmp_path):
    """Each rank had other ones then, and the training failed at its very end."""
    for size, epochs in ((1, 1), (2, 2)):
        batch = ("--batch-per-rank", str(8 // size), "--epochs", str(epochs))
        gang = start_gang(
            tensorflow_zygote,
            [PROGRAM, "train", "tf", *SIZES, *batch, "--warmup-epochs", "1"],
            strategy="horovod",
            size=size,
            folder=tmp_path,
            env=QUIET,
        )
        codes = gang.wait(RUN_S)
        gang.end()
        assert codes == [0] * size, gang.texts()
    assert "world size 1 there, 2 now" in gang.texts()[0]
    wanted = {"known/count": 0, "counter/seen": 4}
    assert [json.loads(text.splitlines()[-1]) for text in gang.texts()] == [wanted] * 2
    # By their whole name, which has a dot.
    files = {path.name for path in (tmp_path / "outputs" / "model").iterdir()}
    assert files == {"odd-v1.5.json", "odd-v1.5.safetensors"}


def test_a_name_that_no_file_has_is_refused(tensorflow_zygote, tmp_path):
    case = ["named", "mine/odd", *SIZES, "--batch-per-rank", "8"]
    (said,) = call(tensorflow_zygote, tmp_path, PROGRAM, case, env=QUIET)
    assert (said.code, said.last_error.partition(" (hint")[0]) == (
        1,
        "error: the model's file cannot have the name 'mine/odd'",
    )


@pytest.mark.parametrize("framework", ["tf", "keras"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_scores_in_half_precision_and_regularizers_make_a_loss_in_fp32(
    tensorflow_zygote, tmp_path, framework, precision
):
    case = [
        *("scores", framework, *SIZES, "--batch-per-rank", "8", "--epochs", "1"),
        *("--warmup-epochs", "0", "--precision", precision, "--output-dir", "out"),
    ]
    (said,) = call(tensorflow_zygote, tmp_path, PROGRAM, case, env=QUIET)
    assert said.code == 0, said
    wanted = {"cross_entropy": ["float32"], "top_k": ["float32"], "learned": ["float32"]}
    assert json.loads(said.out.splitlines()[-1]) == wanted
