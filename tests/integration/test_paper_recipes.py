"""The options that `--recipe` stands for are those of the papers; docs/own-model.md says what else differs."""

import json

import pytest

# Goyal et al. 2017, section 5.1: 0.1 for 256 pictures, a tenth at epochs 30, 60 and 80, no smoothing.
GOYAL = {
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "schedule": "step",
    "warmup_epochs": 5.0,
    "epochs": 90,
    "label_smoothing": 0.0,
    "image_size": 224,
    "loss": "ce",
    "mixup": 0.0,
    "cutmix": 0.0,
    "rand_augment": 0.0,
    "repeats": 1,
    "ema": None,
}
# Wightman et al. 2021, table 2, A3: 0.008 for 2,048 pictures is 0.001 for 256.
A3 = {
    **GOYAL,
    "optimizer": "lamb",
    "lr": 0.001,
    "weight_decay": 0.02,
    "schedule": "cosine",
    "epochs": 100,
    "image_size": 160,
    "loss": "bce",
    "mixup": 0.1,
    "cutmix": 1.0,
    "rand_augment": 6.0,
}


@pytest.fixture(scope="module")
def parsed(zygote, tmp_path_factory):
    """What the image's Python parses options to."""
    module = "tests.integration.programs.recipe_options"
    return json.loads(zygote.run(module, folder=tmp_path_factory.mktemp("recipes")))


@pytest.fixture
def recipes(parsed):
    """The options of each recipe."""
    return parsed["recipes"]


@pytest.mark.parametrize(("name", "published"), [("goyal", GOYAL), ("a3", A3)])
def test_a_recipe_is_the_papers(recipes, name, published):
    assert {key: recipes[name][key] for key in published} == published


def test_no_recipe_is_without_its_paper(recipes):
    assert sorted(recipes) == ["a3", "goyal"]


def test_a_learning_rate_that_is_not_given_suits_the_optimizer(parsed):
    """As checkpoints tell it, as a step of 512 pictures takes it, and as a divergence's hint says."""
    hint = "a smaller --lr than {}, or more --warmup-epochs".format
    assert parsed["rates"] == {
        "": [0.1, 0.2, hint(0.1)],
        "--optimizer sgd": [0.1, 0.2, hint(0.1)],
        "--optimizer adamw": [0.001, 0.002, hint(0.001)],
        "--optimizer lamb": [0.001, 0.002, hint(0.001)],
        "--optimizer adamw --lr 0.1": [0.1, 0.2, hint(0.1)],
    }


def test_what_a_program_sets_beside_its_recipe_wins_and_a_recipe_that_is_typed_replaces_both(
    parsed,
):
    """The recipe of the program's own `defaults` took the place of what stood beside it."""
    assert parsed["beside"] == {
        "": [0.002, 300, 160],
        "--epochs 2": [0.002, 2, 160],
        "--recipe goyal": [0.1, 90, 224],
        "--recipe=goyal --lr 0.3": [0.3, 90, 224],
    }
