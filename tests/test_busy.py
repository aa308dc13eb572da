"""A bound in time holds on a busy machine, and fails on an idle one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
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
A_LOOK_S = 0.5
# What stands in for Azure ends jobs by their own limits; what `make policy` starts is no test.
NO_TESTS = (
    *("bench/", "gpu/", "test_busy.py"),
    *("environments/analyzer.py", "fakes/azureml/nodes.py", "fakes/azureml/runner.py"),
)
# Programs that tests start, and bound: they wait for each other, or for their starter's end. And a
# clock that tests turn.
PROGRAMS = (
    "fakes/turned_clock.py",
    *("faults/programs/", "integration/programs/", "fakes/azure_native/provider.py"),
    "integration/azureml/azureml_core_session.py",
)
CLOCKS = {"monotonic", "perf_counter", "time"}
LESS, MORE = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)


class Bounds:
    """What a program's text says of time: moments, differences of clocks, and constants."""

    def __init__(self, source: str) -> None:
        self._tree = ast.parse(source)
        self._constants = dict(assigned(ast.walk(self._tree)))
        self._measured = {
            name for name, value in assigned(ast.walk(self._tree)) if is_difference(value)
        }

    def own(self) -> Iterator[int]:
        """Lines in which a bound is made by hand, or one gives up before a busy machine answers."""
        asserted = {
            part
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Assert)
            for part in ast.walk(node.test)
        }
        for node in ast.walk(self._tree):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                for clock, more in ((node.left, node.right), (node.right, node.left)):
                    # A moment of the calendar is mostly another's, which ends by it.
                    if is_clock(clock) and (not is_calendar(clock) or self._is_short(more)):
                        yield node.lineno
            if isinstance(node, ast.Compare):
                sides = (node.left, *node.comparators)
                for one, sign, other in zip(sides, node.ops, sides[1:], strict=False):
                    below = (one, other) if isinstance(sign, LESS) else (other, one)
                    # That it took so long at least holds on a busy machine, too.
                    ways = [below] if node in asserted else [below, below[::-1]]
                    if isinstance(sign, LESS + MORE) and any(
                        self._is_measured(took) and self._is_short(most) for took, most in ways
                    ):
                        yield node.lineno
            for given in patience_of(node) if isinstance(node, ast.Call) else ():
                if (self._seconds(given) or 0) > A_LOOK_S and self._is_short(given):
                    yield node.lineno

    def endless(self) -> Iterator[int]:
        """Lines of loops that look again and again without a Bound: a hang of them says nothing."""
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.For | ast.While):
                continue
            calls = {name_of(part) for part in ast.walk(node) if isinstance(part, ast.Call)}
            looks = "sleep" in calls or all(
                isinstance(part, ast.Pass | ast.Assert) for part in node.body
            )
            # A `for` that leaves early, or counts without end, waits for something.
            waits = isinstance(node, ast.While) or any(
                isinstance(part, ast.Break | ast.Return) or name_of(part) == "count"
                for part in ast.walk(node)
            )
            if looks and waits and not calls & {"check", "is_passed"}:
                yield node.lineno

    def _is_measured(self, side: ast.expr) -> bool:
        name = side.id if isinstance(side, ast.Name) else ""
        return is_difference(side) or name in self._measured or name.endswith("took_s")

    def _is_short(self, side: ast.expr) -> bool:
        seconds = self._seconds(side)
        return seconds is not None and seconds < HANG_S

    def _seconds(self, side: ast.expr) -> float | None:
        value = self._constants.get(side.id) if isinstance(side, ast.Name) else side
        seconds = value.value if isinstance(value, ast.Constant) else None
        return seconds if isinstance(seconds, int | float) else None


def assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Names that get a value, each with it."""
    for node in nodes:
        for name in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(name, ast.Name):
                yield name.id, node.value


def is_clock(side: ast.expr) -> bool:
    return isinstance(side, ast.Call) and not side.args and name_of(side) in CLOCKS


def is_calendar(clock: ast.expr) -> bool:
    return name_of(clock) == "time"


def is_difference(side: ast.expr) -> bool:
    is_one = isinstance(side, ast.BinOp) and isinstance(side.op, ast.Sub)
    return is_one and (is_clock(side.left) or is_clock(side.right))


def patience_of(call: ast.Call) -> Iterator[ast.expr]:
    """What a call says of how long it waits; nothing of those who wait by a Bound."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name_of(call) in GIVE_UP and isinstance(of, ast.Name) and of.id in BOUNDED:
        return
    yield from (each.value for each in call.keywords if each.arg == "timeout")
    place = GIVE_UP.get(name_of(call))
    if place is not None:
        yield from call.args[place : place + 1]


def name_of(call: ast.AST) -> str:
    func = getattr(call, "func", None)
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("until_s = time.monotonic() + 60", True),
        ("HTTPConnection(host, timeout=10)", True),
        ("process.wait(60)", True),
        ("process.wait(2)", True),
        ("HTTPConnection(host, timeout=1)", True),
        ("answer.result(30)", True),
        ("said.get(timeout=60)", True),
        ("silent.settimeout(60)", True),
        ("subprocess.run(argv, timeout=60, check=False)", True),
        ("news.wait_for(lambda: True, 10)", True),
        ("SOON_S = 30\nthread.join(SOON_S)", True),
        ("until_s = time.perf_counter() + 5", True),
        ("until_s = time.time() + 5", True),
        ("LONG_S = 5\nuntil_s = LONG_S + time.time()", True),
        ("assert monotonic() - began_s < 5", True),
        ("assert 5 >= time.perf_counter() - began_s", True),
        ("assert 1 < time.time() - began_s < 5", True),
        ("while time.monotonic() - began_s < 5:\n    pass", True),
        ("if time.monotonic() - began_s > 5:\n    raise TimeoutError", True),
        ("took = time.monotonic() - began_s\nassert took < 5", True),
        ("MOST_S = 5\nassert (said, took_s < MOST_S)", True),
        ("def test():\n    most_s = 5\n    assert took_s < most_s", True),
        ("most_s = 5 * how_busy()\nassert took_s < most_s", False),
        ("token = Token(expires_on=time.time() + 3600)", False),
        ("assert time.monotonic() - began_s >= 1", False),
        ("assert 3500 < ends_s - time.time() < 3700", False),
        ("assert took_s < 3 * other_s", False),
        ("assert took_s < how_busy()", False),
        ("took_s = time.monotonic() - began_s", False),
        ("process.communicate(timeout=HANG_S)", False),
        ("HANG_S = 300\nprocess.wait(HANG_S)", False),
        ("gang.wait(120)", False),
        ("stop.wait(0.001)", False),
        ("', '.join(names)", False),
    ],
)
def test_an_own_bound_is_known(line, is_one):
    assert bool([*Bounds(line).own()]) == is_one


@pytest.mark.parametrize(
    ("loop", "is_one"),
    [
        ("while not path.exists():\n    time.sleep(0.01)", True),
        ("while not path.exists():\n    assert process.poll() is None\n    sleep(0.01)", True),
        ("while not path.exists():\n    pass", True),
        ("while not path.exists():\n    assert process.poll() is None", True),
        ("for _ in range(9):\n    if path.exists():\n        break\n    time.sleep(1)", True),
        ("for _ in count():\n    time.sleep(1)", True),
        ("for _ in range(9):\n    time.sleep(1)\n    process.kill()", False),
        ("while not path.exists():\n    bound.check()\n    time.sleep(0.01)", False),
        ("while not (path.exists() or bound.is_passed()):\n    time.sleep(0.01)", False),
        ("while waiting:\n    waiting.pop()", False),
    ],
)
def test_a_loop_without_a_bound_is_known(loop, is_one):
    assert bool([*Bounds(loop).endless()]) == is_one


def test_no_test_has_a_bound_in_time_of_its_own_or_waits_without_one():
    texts = {
        path.relative_to(TESTS).as_posix(): Bounds(path.read_text(encoding="utf-8"))
        for path in TESTS.rglob("*.py")
    }
    assert len(texts) > len(NO_TESTS + PROGRAMS)
    own = {
        f"{name}:{line}"
        for name, text in texts.items()
        if not name.startswith(NO_TESTS)
        for line in text.own()
    }
    assert own == set(), "take a Bound, wait_until or HANG_S of tests/busy.py"
    endless = {
        f"{name}:{line}"
        for name, text in texts.items()
        if not name.startswith(NO_TESTS + PROGRAMS)
        for line in text.endless()
    }
    assert endless == set(), "take wait_until of tests/busy.py, which tells what is there instead"


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


def test_a_machine_that_was_busy_is_asked_again_only_once_what_it_was_granted_is_passed(clock):
    asked = []
    clock.setattr(busy, "how_busy", lambda: asked.append(1) or 3.0)
    bound = Bound(2)
    for _ in range(5):
        bound.check()
    assert asked == [1]
    assert bound.is_passed()
    assert asked == [1, 1]


def test_the_machine_is_asked_only_once_a_bound_is_passed(clock):
    asked = []
    clock.setattr(busy, "how_busy", lambda: asked.append(1) or 1.0)
    looks = iter([False] * 3 + [True])
    wait_until(lambda: next(looks), 10)
    assert asked == []
    with pytest.raises(AssertionError, match=r"4\.0 s, bound 4 s, .*: nobody, 1 asked"):
        wait_until(lambda: False, 4, lambda: f"nobody, {len(asked)} asked")
    assert asked == [1]


def test_what_can_be_no_more_is_waited_for_no_longer(clock):
    clock.setattr(busy, "how_busy", lambda: 1.0)
    ended = iter([None, 3, 3])
    with pytest.raises(AssertionError, match=r"over \(3\): no file"):
        wait_until(lambda: False, 100, lambda: "no file", over=lambda: next(ended))
    # What comes with its end is there.
    looks = iter([False, True])
    wait_until(lambda: next(looks), 100, over=lambda: 0)
    assert next(looks, "no look more") == "no look more"


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
