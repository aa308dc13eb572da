"""Prints what each `--recipe` of the classifiers stands for, and optimizers' learning rates, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from trainer.common.options import parse_options, recipe_of
from trainer.pytorch.classifier import RECIPES, Options, read_options


def main(_argv: Sequence[str]) -> None:
    """Parse the options of each recipe, and of optimizers with and without a rate."""
    recipes = {name: vars(parse_options(Options, list(words))) for name, words in RECIPES.items()}
    given = ("", *(f"--optimizer {name}" for name in ("sgd", "adamw", "lamb")))
    rates = {}
    for words in (*given, "--optimizer adamw --lr 0.1"):
        options = parse_options(Options, words.split())
        schedule = options.rates(batch_size=512, num_batches=1)
        rates[words] = [recipe_of(options)["lr"], schedule.peak, options.hint]
    defaults = "--recipe", "a3", "--lr", "0.002", "--epochs", "300"
    beside = {}
    for words in ("", "--epochs 2", "--recipe goyal", "--recipe=goyal --lr 0.3"):
        read = read_options(Options, words.split(), defaults=defaults)
        beside[words] = [read.lr, read.epochs, read.image_size]
    print(json.dumps({"recipes": recipes, "rates": rates, "beside": beside}, default=str))
