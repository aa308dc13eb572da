"""Prints what each `--recipe` of the classifiers stands for, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from trainer.common.options import parse_options
from trainer.pytorch.classifier import RECIPES, Options


def main(_argv: Sequence[str]) -> None:
    """Parse the options of each recipe."""
    made = {name: vars(parse_options(Options, list(words))) for name, words in RECIPES.items()}
    print(json.dumps(made, default=str))
