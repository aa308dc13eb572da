"""parse_options: a dataclass as a command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from trainer.common.options import MAY_CHANGE, parse_options, recipe_of


@dataclass(frozen=True, kw_only=True)
class Options:
    epochs: Annotated[int, "passes"] = 3
    learning_rate: Annotated[float, "step size"] = 0.1
    name: Annotated[str, "what to call it"] = "x"
    data: Annotated[Path | None, "folder"] = None
    kind: Annotated[Literal["a", "b"] | None, "which"] = None
    fast: Annotated[bool, "hurry, by 10 %"] = False

    def __post_init__(self) -> None:
        if self.epochs < 1:
            message = f"--epochs must be above 0, not {self.epochs}"
            raise ValueError(message)


def test_no_flag_gives_the_defaults():
    assert parse_options(Options, []) == Options()


def test_every_kind_of_flag_is_read():
    argv = ["--epochs", "5", "--learning-rate", "1e-3", "--name", "y", "--data", "/d"]
    expected = Options(
        epochs=5, learning_rate=0.001, name="y", data=Path("/d"), kind="b", fast=True
    )
    assert parse_options(Options, [*argv, "--kind", "b", "--fast"]) == expected
    assert parse_options(Options, ["--no-fast"]) == Options()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--epochs", "many"], "argument --epochs: invalid int value: 'many'"),
        (["--epochs", "0"], "--epochs must be above 0, not 0"),
        (["--kind", "c"], "argument --kind: invalid choice: 'c'"),
        (["--epoch", "1"], "unrecognized arguments: --epoch 1"),
    ],
)
def test_a_wrong_flag_ends_with_2_and_one_line_that_says_why(argv, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        parse_options(Options, argv)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_help_says_each_flag_and_its_default(capsys):
    with pytest.raises(SystemExit):
        parse_options(Options, ["--help"], description="Trains.")
    text = capsys.readouterr().out
    assert "Trains." in text
    assert "--learning-rate N" in text
    assert "step size (default: 0.1)" in text
    assert "hurry, by 10 % (default: False)" in text


@dataclass(frozen=True, kw_only=True)
class Training(Options):
    weights: Annotated[Path, "file"] = Path("a.pt")
    num_classes: Annotated[int, "classes of made data"] = 10
    epochs: Annotated[int, "passes", MAY_CHANGE] = 3
    workers: Annotated[int | None, "threads", MAY_CHANGE] = None


@dataclass(frozen=True, kw_only=True)
class Longer(Training):
    """Has another default; the mark is that of the class above."""

    epochs: Annotated[int, "passes"] = 90


def test_a_recipe_is_all_options_but_those_that_may_change():
    found = recipe_of(Longer(learning_rate=0.2), program="p", num_classes=4)
    assert found == {
        "learning_rate": 0.2,
        "name": "x",
        "data": None,
        "kind": None,
        "fast": False,
        "weights": "a.pt",
        "num_classes": 4,
        "program": "p",
    }


def test_an_option_that_may_change_is_read_as_any_other():
    assert parse_options(Training, ["--epochs", "5", "--workers", "2"]) == Training(
        epochs=5, workers=2
    )
