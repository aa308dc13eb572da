"""The options that `--recipe` stands for are those of the papers."""

import json
import subprocess

import pytest

from jobs.host.project import project_root
from tests import needs

ASK = """
import json, sys
from trainer.common.options import parse_options
from trainer.pytorch.classifier import RECIPES, Options

made = {name: vars(parse_options(Options, list(words))) for name, words in RECIPES.items()}
print(json.dumps(made, default=str))
"""
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
def recipes():
    """The options of each recipe, as the image's Python parses them."""
    command = [needs.runtime("pytorch"), "-c", ASK]
    asked = subprocess.run(command, cwd=project_root(), capture_output=True, text=True, check=True)
    return json.loads(asked.stdout)


@pytest.mark.parametrize(("name", "published"), [("goyal", GOYAL), ("a3", A3)])
def test_a_recipe_is_the_papers(recipes, name, published):
    assert {key: recipes[name][key] for key in published} == published


def test_no_recipe_is_without_its_paper(recipes):
    assert sorted(recipes) == ["a3", "goyal"]
