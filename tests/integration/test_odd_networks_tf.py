"""TensorFlow's and Keras's programs train networks that built-in ones are not like.

They have integer weights, frozen parts and scores in half precision; or are classes of layers, or have weights of one name.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.picture_runs import call
from tests.fakes.torch_ranks import Place, Zygote, mirrored_workers, start_gang

PROGRAM = "tests.integration.programs.tf_odd_network"
OWN = "tests.integration.programs.tf_own_networks"
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


# How many weights of each network learn; None is one that the loss does not depend on.
LEARNING: dict[str, tuple[int, int]] = {
    "sequential": (4, 0),
    "called": (6, 0),
    "own-weight": (7, 0),
    "built-layers": (6, 0),
    "asking": (6, 0),
    "trained": (8, 0),
    "shaped": (6, 0),
    "twins": (4, 0),
    "scales": (5, 0),
    "branches": (6, 0),
    "one-slot": (6, 0),
    "known": (2, 0),
    "halved": (6, 0),
    "penalty": (2, 0),
    "unused": (2, 2),
}


@pytest.fixture(scope="module")
def kept(tensorflow_zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tf_own_networks.py found of each network."""
    folder = tmp_path_factory.mktemp("kept")
    said = tensorflow_zygote.run(OWN, "kept", *LEARNING, folder=folder, env=QUIET)
    return json.loads(said.splitlines()[-1])


@pytest.mark.parametrize("name", LEARNING)
def test_networks_as_keras_takes_them_learn_resume_and_load(kept, name):
    """Every weight of a class of layers, or of equal names; also from files of earlier versions."""
    num_learning, num_unused = LEARNING[name]
    moved, is_resumed, is_loaded, is_loaded_of_earlier = kept[name]
    assert sorted(moved) == [False] * num_unused + [True] * num_learning
    assert (is_resumed, is_loaded, is_loaded_of_earlier) == (True, True, True)


def test_networks_that_take_no_pictures_are_refused(tensorflow_zygote, tmp_path):
    said = tensorflow_zygote.run(OWN, "refused", folder=tmp_path, env=QUIET)
    assert json.loads(said.splitlines()[-1]) == [
        "build() gives NoneType, no network (hint: `return` a keras.Model)",
        "build() makes a network that takes (64, 64, 3): pictures are (16, 16, 3) "
        "(hint: an input of `image_size`, which build() is given)",
    ]


@pytest.mark.parametrize("framework", ["tf", "keras"])
def test_networks_without_an_input_train_and_those_without_weights_are_refused(
    tensorflow_zygote, tmp_path, framework
):
    few = ("--batch-per-rank", "8", "--epochs", "2", "--lr", "3", "--warmup-epochs", "0")
    cases = [
        ("train", framework, name, *SIZES, *few, "--output-dir", name)
        for name in ("sequential", "frozen")
    ]
    trained, refused = call(tensorflow_zygote, tmp_path, OWN, *cases, env=QUIET)
    assert trained.code == 0, trained
    lines = (tmp_path / "sequential" / "metrics.jsonl").read_text().splitlines()
    losses = {
        each["value"]
        for each in map(json.loads, lines)
        if (each["split"], each["name"]) == ("val", "loss")
    }
    assert len(losses) == 2
    assert (refused.code, refused.last_error) == (
        1,
        "error: build() makes a network without a weight that learns "
        "(hint: leave some layers' `trainable` True, or --evaluate-only)",
    )


@pytest.mark.parametrize(("strategy", "framework"), [("horovod", "tf"), ("mwms", "keras")])
def test_ranks_whose_counts_and_statistics_differ_end_with_those_of_rank_0(
    tensorflow_zygote, tmp_path, strategy, framework
):
    """They had other ones, of types that not all collectives take, and failed after the last step."""
    place = Place("horovod" if strategy == "horovod" else "single", 2)
    environments = place.environments if strategy == "horovod" else mirrored_workers(2)
    logs = [tmp_path / f"rank-{rank}.log" for rank in (0, 1)]
    few = ("--batch-per-rank", "4", "--epochs", "2", "--warmup-epochs", "0")
    pids = [
        tensorflow_zygote.fork(
            [OWN, "train", framework, "differing", *SIZES, *few, "--strategy", strategy],
            env={
                **each,
                **QUIET,
                "TRAINYARD_RUN_DIR": str(tmp_path),
                "TRAINYARD_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
            },
            cwd=tmp_path,
            log=log,
        )
        for each, log in zip(environments, logs, strict=True)
    ]
    assert tensorflow_zygote.wait(pids, RUN_S), [log.read_text() for log in logs]
    place.close()
    codes = [tensorflow_zygote.code(pid) for pid in pids]
    assert codes == [0, 0], [log.read_text() for log in logs]
    own, others = (json.loads(log.read_text().splitlines()[-1]) for log in logs)
    assert own == others
    assert own[0] == [4, 0, 0]
    warned = (
        "warning: `norm` normalizes by the pictures of its own rank: `synchronized` has no effect"
    )
    assert [log.read_text().splitlines().count(warned) for log in logs] == [1, 0]
