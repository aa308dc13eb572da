"""The rate of a store counts while it sets the pace, and not while little is asked of it."""

import pytest

from trainer.data.streaming.flow import LEAST_S, Flow


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_bytes_count_while_enough_requests_are_under_way():
    clock = Clock()
    flow = Flow(2, clock=clock)
    with flow.request(1000):  # alone for 3 s
        clock.now += 3
        for _ in range(4):
            with flow.request(100):
                clock.now += 1
        clock.now += 5
    assert flow.bytes_per_s == 100.0


def test_a_request_that_fails_takes_time_and_brings_nothing():
    clock = Clock()
    flow = Flow(1, clock=clock)
    with flow.request(100):
        clock.now += 2

    def fail():
        with flow.request(100):
            clock.now += 2
            raise OSError("away")

    with pytest.raises(OSError, match="away"):
        fail()
    assert flow.bytes_per_s == 25.0


@pytest.mark.parametrize(("seconds", "rate"), [(LEAST_S / 2, None), (LEAST_S, 100.0)])
def test_of_a_short_time_nothing_is_told(seconds, rate):
    clock = Clock()
    flow = Flow(1, clock=clock)
    assert flow.bytes_per_s is None
    with flow.request(100):
        clock.now += seconds
    assert flow.bytes_per_s == rate
