"""Learning rates, compared with the recurrences by which PyTorch's schedulers define theirs."""

from __future__ import annotations

import math

import pytest

from trainer.common.schedule import Schedule, parse_steps


def linear_then_multistep(peak: float, num_warmup: int, milestones: set[int], num_steps: int):
    """LinearLR from peak/num_warmup on, then MultiStepLR: each step changes the rate before it."""
    rates = [peak / num_warmup if num_warmup else peak]
    for step in range(1, num_steps):
        if step < num_warmup:
            # LinearLR: lr *= 1 + (end - start) / (total * start + (t - 1) * (end - start))
            start, total = 1 / num_warmup, num_warmup - 1
            change = (1 - start) / (total * start + (step - 1) * (1 - start))
            rates.append(rates[-1] * (1 + change))
        else:
            rates.append(rates[-1] * (0.1 if step in milestones else 1))
    return rates


def cosine(peak: float, num_warmup: int, num_steps: int):
    """CosineAnnealingLR after the warm-up: lr *= (1 + cos(pi t/T)) / (1 + cos(pi (t-1)/T))."""
    period = num_steps - num_warmup
    rates = [peak]
    for t in range(1, period):
        ratio = (1 + math.cos(math.pi * t / period)) / (1 + math.cos(math.pi * (t - 1) / period))
        rates.append(rates[-1] * ratio)
    return rates


@pytest.mark.parametrize("num_warmup", [0, 1, 5, 50])
def test_step_schedule_is_that_of_90_epochs(num_warmup):
    schedule = Schedule(name="step", peak=0.4, num_steps=900, num_warmup_steps=num_warmup)
    expected = linear_then_multistep(0.4, num_warmup, {300, 600, 800}, 900)
    assert [schedule.rate(step) for step in range(900)] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("num_steps", [90, 450, 112_590])
def test_steps_come_at_30_60_and_80_of_90(num_steps):
    schedule = Schedule(name="step", peak=1.0, num_steps=num_steps)
    one = num_steps // 90
    found = [schedule.rate(step) for part in (30, 60, 80) for step in (part * one - 1, part * one)]
    assert found == pytest.approx([1, 0.1, 0.1, 0.01, 0.01, 0.001], rel=1e-12)


def test_steps_may_be_elsewhere():
    schedule = Schedule(name="step", peak=0.02, num_steps=26, steps_at=(16 / 26, 22 / 26))
    found = [round(schedule.rate(step), 9) for step in range(26)]
    assert found == [0.02] * 16 + [0.002] * 6 + [0.0002] * 4


@pytest.mark.parametrize("num_warmup", [0, 10])
def test_cosine_falls_from_the_peak_to_nearly_nothing(num_warmup):
    schedule = Schedule(name="cosine", peak=2.0, num_steps=200, num_warmup_steps=num_warmup)
    found = [schedule.rate(step) for step in range(num_warmup, 200)]
    assert found == pytest.approx(cosine(2.0, num_warmup, 200), rel=1e-6)
    assert schedule.rate(200) == pytest.approx(0, abs=1e-12)


def test_warm_up_rises_by_equal_parts_to_the_peak():
    for name in ("step", "cosine"):
        schedule = Schedule(name=name, peak=0.8, num_steps=100, num_warmup_steps=4)
        assert [round(schedule.rate(step), 9) for step in range(5)] == [0.2, 0.4, 0.6, 0.8, 0.8]


def test_training_of_warm_up_only_has_a_rate():
    schedule = Schedule(name="cosine", peak=1.0, num_steps=4, num_warmup_steps=4)
    assert [schedule.rate(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_a_training_that_only_warms_up_ends_at_its_peak():
    schedule = Schedule(name="cosine", peak=2.0, num_steps=5, num_warmup_steps=5)
    assert [schedule.rate(step) for step in (3, 4, 5)] == [1.6, 2.0, 2.0]


def test_steps_are_read_from_rising_numbers_alone():
    assert parse_steps("60000, 80000", option="--at") == [60000, 80000]
    for text in ("", "0,5", "5,5", "9,5", "5,x", "-5", "1e3", "5,"):
        with pytest.raises(ValueError, match=rf"--at are rising numbers.*, not {text}$"):
            parse_steps(text, option="--at")
