"""A bound in time holds on a busy machine, and fails on an idle one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import busy
from tests.busy import MOST_FOR_A_LIMIT, Bound, how_busy, limit_s, wait_until

TESTS = Path(__file__).parent
# A bound made by hand, or a client that gives up before a busy machine has answered.
OWN_BOUNDS = re.compile(
    r"monotonic\(\) \+|(?:communicate|Connection|create_connection)\([^)\n]*timeout=\d{1,2}(?:\.\d+)?\)"
)
# What stands in for Azure ends jobs by their own limits; what `make policy` starts is no test.
NO_TESTS = {"environments/analyzer.py", "fakes/azureml/nodes.py", "fakes/azureml/runner.py"}


def test_no_test_has_a_bound_in_time_of_its_own():
    own = ["until_s = time.monotonic() + 60", "HTTPConnection(host, timeout=10)"]
    none = ["monotonic() - began_s", "communicate(timeout=HANG_S)", "communicate(timeout=240)"]
    assert [bool(OWN_BOUNDS.search(each)) for each in own + none] == [True] * 2 + [False] * 3
    places = {
        f"{name}:{number}"
        for path in TESTS.rglob("*.py")
        if (name := path.relative_to(TESTS).as_posix()) not in NO_TESTS
        and not name.startswith(("bench/", "gpu/", "test_busy.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OWN_BOUNDS.search(line)
    }
    assert places == set(), "take a Bound, wait_until or HANG_S of tests/busy.py"


@pytest.fixture
def clock(monkeypatch):
    """A clock that each look turns by a second."""
    seconds = iter(range(1000))
    monkeypatch.setattr(busy.time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(busy, "POLL_S", 0)
    return monkeypatch


def test_a_bound_is_as_much_longer_as_the_machine_is_busy(clock):
    clock.setattr(busy, "how_busy", lambda: 3.0)
    bound = Bound(2)
    for _ in range(5):
        bound.check()
    with pytest.raises(AssertionError) as caught:
        bound.check("two runs are left")
    said = "6.0 s, bound 2 s, machine 3.0 times as slow: two runs are left"
    assert str(caught.value).splitlines()[0] == said


def test_the_machine_is_asked_only_once_a_bound_is_passed(clock):
    asked = []
    clock.setattr(busy, "how_busy", lambda: asked.append(1) or 1.0)
    looks = iter([False] * 3 + [True])
    wait_until(lambda: next(looks), 10)
    assert asked == []
    with pytest.raises(AssertionError, match=r"4\.0 s, bound 4 s, .*: nobody, 1 asked"):
        wait_until(lambda: False, 4, lambda: f"nobody, {len(asked)} asked")
    assert asked == [1]


def test_waiting_for_a_processor_and_a_load_that_has_just_ended_count(monkeypatch):
    monkeypatch.setattr(busy.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(busy.os, "cpu_count", lambda: 2)
    assert how_busy() >= 1
    usage = type("Usage", (), {"ru_utime": 0.5, "ru_stime": 0.5})
    monkeypatch.setattr(busy.os, "posix_spawn", lambda *_: 7)
    monkeypatch.setattr(busy.os, "wait4", lambda pid, _: (pid, 0, usage))
    times = iter([10.0, 14.0, 20.0, 21.0])
    monkeypatch.setattr(busy.time, "monotonic", lambda: next(times))
    assert how_busy() == 4
    monkeypatch.setattr(busy.os, "getloadavg", lambda: (6.0, 0.0, 0.0))
    assert how_busy() == 3


@pytest.mark.parametrize(("busy_now", "times"), [(1.0, 1), (2.3, 3), (60.0, MOST_FOR_A_LIMIT)])
def test_a_job_s_limit_grows_by_whole_times_and_not_without_end(monkeypatch, busy_now, times):
    monkeypatch.setattr(busy, "how_busy", lambda: busy_now)
    assert limit_s(5.0) == 5.0 * times
