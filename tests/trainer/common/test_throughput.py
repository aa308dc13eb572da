"""Throughput: the samples of all ranks over the time of the same steps."""

from __future__ import annotations

from trainer.common.throughput import Throughput


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_only_training_after_the_warm_up_counts():
    clock = Clock()
    throughput = Throughput(num_warmup_steps=2, clock=clock)
    for seconds in (10, 1):
        with throughput.training():
            for _ in range(3):
                clock.now += seconds
                throughput.step(64)
        clock.now += 100  # evaluation
    # One step of 10 s in the first block, three of 1 s in the second.
    assert throughput.samples_per_s == 4 * 64 / 13


def test_there_is_no_rate_within_the_warm_up():
    clock = Clock()
    throughput = Throughput(num_warmup_steps=5, clock=clock)
    with throughput.training():
        clock.now += 1
        throughput.step(64)
    assert throughput.samples_per_s is None


def test_the_device_is_waited_for_before_the_clock_is_read():
    clock = Clock()

    def synchronise() -> None:
        clock.now += 2

    throughput = Throughput(num_warmup_steps=0, synchronise=synchronise, clock=clock)
    with throughput.training():
        throughput.step(10)
    assert throughput.samples_per_s == 5.0


def test_the_rate_of_the_moment_counts_the_block_that_is_open():
    clock = Clock()
    throughput = Throughput(num_warmup_steps=1, clock=clock)
    with throughput.training():
        clock.now += 50
        assert throughput.current_per_s is None
        throughput.step(64)
        assert throughput.current_per_s is None
        clock.now += 2
        throughput.step(64)
        assert throughput.current_per_s == 32
    clock.now += 100  # evaluation
    with throughput.training():
        clock.now += 6
        throughput.step(64)
        assert throughput.current_per_s == 2 * 64 / 8
    assert throughput.samples_per_s == 2 * 64 / 8


def test_the_parts_of_a_step_are_those_since_they_were_asked_for():
    clock = Clock()
    throughput = Throughput(num_warmup_steps=0, clock=clock)
    assert throughput.take_parts() == {}
    for seconds in (3, 1):
        with throughput.waiting():
            clock.now += seconds
        clock.now += 10
        throughput.step(64)
        throughput.add_host(0.5)
    assert throughput.take_parts() == {"data_wait_s": 2.0, "host_s": 0.5}
    assert throughput.take_parts() == {}
    with throughput.waiting():
        clock.now += 0.5
    throughput.step(64)
    assert throughput.take_parts() == {"data_wait_s": 0.5}
    assert throughput.data_wait_s == 1.5


def test_a_whole_step_is_told_beside_its_parts_without_what_lies_between():
    clock = Clock()
    throughput = Throughput(num_warmup_steps=0, clock=clock)
    throughput.also(lambda: {"compute_s": 1.0})
    for pause in (100, 0):
        with throughput.training():
            for seconds in (2, 4):
                clock.now += seconds
                throughput.step(64)
        clock.now += pause
    assert throughput.take_parts() == {"compute_s": 1.0, "step_s": 3.0}


def test_parts_that_others_time_are_told_with_the_step():
    throughput = Throughput(num_warmup_steps=0, clock=Clock())
    throughput.also(lambda: {"exchange_s": 0.25})
    assert throughput.take_parts() == {}
    throughput.step(64)
    throughput.add_host(0.5)
    assert throughput.take_parts() == {"host_s": 0.5, "exchange_s": 0.25, "step_s": 0.0}


def test_a_program_that_times_no_part_tells_none():
    throughput = Throughput(num_warmup_steps=0)
    assert throughput.data_wait_s is None
    throughput.step(64)
    assert throughput.take_parts() == {}
