"""The recipe of the ResNet-50 programs: the warm-up that is taken where none is given."""

from __future__ import annotations

import pytest

from trainer.common.options import parse_options, recipe_of
from trainer.common.resnet_options import ResnetOptions
from trainer.common.schedule import Schedule

NUM_BATCHES = 12


def rates(*argv: str) -> Schedule:
    options = parse_options(ResnetOptions, argv)
    return options.rates(batch_size=512, num_batches=NUM_BATCHES)


def test_90_epochs_warm_up_in_five_of_them():
    wanted = Schedule(name="step", peak=0.2, num_steps=1080, num_warmup_steps=60)
    assert rates() == wanted
    assert rates("--epochs", "90", "--warmup-epochs", "5") == wanted


@pytest.mark.parametrize(
    ("num_epochs", "num_steps"), [(1, 3), (2, 6), (4, 12), (6, 18), (19, 57), (20, 60), (21, 60)]
)
@pytest.mark.parametrize("schedule", ["step", "cosine"])
def test_a_short_training_warms_up_in_a_quarter_of_its_epochs(num_epochs, num_steps, schedule):
    """And has its peak before the rate falls; five epochs of four had none."""
    found = rates("--epochs", str(num_epochs), "--schedule", schedule)
    assert found.num_warmup_steps == num_steps
    assert [found.rate(step) for step in (num_steps - 1, num_steps)] == pytest.approx([0.2] * 2)


@pytest.mark.parametrize(
    ("num_epochs", "given", "num_steps"), [(4, "5", 60), (4, "0", 0), (90, "7", 84), (2, "0.5", 6)]
)
def test_a_warm_up_that_is_given_is_taken_as_it_is(num_epochs, given, num_steps):
    found = rates("--epochs", str(num_epochs), "--warmup-epochs", given)
    assert found.num_warmup_steps == num_steps


def test_a_warm_up_of_less_than_nothing_is_refused(capsys):
    with pytest.raises(SystemExit):
        rates("--warmup-epochs", "-1")
    assert "--warmup-epochs must be 0 or more, not -1.0" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--lr", "--warmup-epochs", "--weight-decay"])
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_number_that_is_not_finite_is_refused(option, number, capsys):
    with pytest.raises(SystemExit) as ended:
        rates(option, number)
    assert ended.value.code == 2
    assert f"{option} must be finite, not {number}\n" in capsys.readouterr().err


@pytest.mark.parametrize(("argv", "told"), [((), 5.0), (("--epochs", "4"), 5.0)])
def test_a_checkpoint_tells_the_default_whatever_the_number_of_epochs(argv, told):
    """As it was told when the default was five epochs; the number of epochs may change."""
    options = parse_options(ResnetOptions, argv)
    assert recipe_of(options, **options.facts)["warmup_epochs"] == told


def test_a_checkpoint_tells_a_warm_up_that_is_given():
    options = parse_options(ResnetOptions, ["--warmup-epochs", "1"])
    assert recipe_of(options, **options.facts)["warmup_epochs"] == 1.0
