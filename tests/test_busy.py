"""A bound in time holds on a busy machine, and fails on an idle one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import busy
from tests.busy import HANG_S, MOST_FOR_A_LIMIT, Bound, how_busy, limit_s, wait_until

TESTS = Path(__file__).parent
# Calls that give up after seconds that stand at this place where no `timeout` is named.
GIVE_UP = {"wait": 0, "result": 0, "join": 0, "settimeout": 0, "wait_for": 1}
# They wait by a Bound; `run` is a user's, whose own limit is under test.
BOUNDED = {"gang", "gangs", "run"}
# What is so short is a look, and nobody waits for an answer.
A_LOOK_S = 2
# What stands in for Azure ends jobs by their own limits; what `make policy` starts is no test.
NO_TESTS = {"environments/analyzer.py", "fakes/azureml/nodes.py", "fakes/azureml/runner.py"}


def own_bounds(source: str) -> Iterator[int]:
    """Lines in which a bound is made by hand, or somebody gives up before a busy machine answers."""
    tree = ast.parse(source)
    constants = {
        name.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for name in node.targets
        if isinstance(name, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sides = (node.left, node.right)
            if any(isinstance(each, ast.Call) and name_of(each) == "monotonic" for each in sides):
                yield node.lineno
        for given in patience_of(node) if isinstance(node, ast.Call) else ():
            value = constants.get(given.id) if isinstance(given, ast.Name) else given
            seconds = value.value if isinstance(value, ast.Constant) else None
            if isinstance(seconds, int | float) and A_LOOK_S < seconds < HANG_S:
                yield node.lineno


def patience_of(call: ast.Call) -> Iterator[ast.expr]:
    """What a call says of how long it waits; nothing of those who wait by a Bound."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name_of(call) in GIVE_UP and isinstance(of, ast.Name) and of.id in BOUNDED:
        return
    yield from (each.value for each in call.keywords if each.arg == "timeout")
    place = GIVE_UP.get(name_of(call))
    if place is not None:
        yield from call.args[place : place + 1]


def name_of(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("until_s = time.monotonic() + 60", True),
        ("HTTPConnection(host, timeout=10)", True),
        ("process.wait(60)", True),
        ("answer.result(30)", True),
        ("said.get(timeout=60)", True),
        ("silent.settimeout(60)", True),
        ("subprocess.run(argv, timeout=60, check=False)", True),
        ("news.wait_for(lambda: True, 10)", True),
        ("SOON_S = 30\nthread.join(SOON_S)", True),
        ("took_s = time.monotonic() - began_s", False),
        ("process.communicate(timeout=HANG_S)", False),
        ("HANG_S = 300\nprocess.wait(HANG_S)", False),
        ("gang.wait(120)", False),
        ("stop.wait(0.001)", False),
        ("', '.join(names)", False),
    ],
)
def test_an_own_bound_is_known(line, is_one):
    assert bool([*own_bounds(line)]) == is_one


def test_no_test_has_a_bound_in_time_of_its_own():
    places = {
        f"{name}:{line}"
        for path in TESTS.rglob("*.py")
        if (name := path.relative_to(TESTS).as_posix()) not in NO_TESTS
        and not name.startswith(("bench/", "gpu/", "test_busy.py"))
        for line in own_bounds(path.read_text(encoding="utf-8"))
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
