"""Random tests draw the same until somebody gives another seed, and say what they drew from."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests import seeds
from tests.suites import counts, run_suite

TESTS = Path(__file__).parent
OWN_GENERATOR = re.compile(
    r"\bRandom\(|default_rng\(|\brandom\.(?:seed|uniform|choice|randint|random)\("
)
# Programs that other Pythons run without pytest, two of them within tests, what is published, and
# the order of an epoch by hand.
NO_TESTS = (
    "bench/",
    "faults/test_stream_kills.py",
    "fuzz/jpeg_crop.py",
    "gpu/",
    "integration/programs/",
    "integration/test_stock_keras.py",
    "seeds.py",
    "test_seeds.py",
    "trainer/common/test_epoch_order.py",
)


def test_no_test_has_a_generator_that_the_variable_does_not_reach():
    own = [
        "random.Random(3)",
        "x = Random(seed)",
        "np.random.default_rng(4)",
        "random.uniform(0, 1)",
    ]
    none = ["seeds.dice(7).random()", "drawn.choice(x)", "random.Random, number: int"]
    found = [bool(OWN_GENERATOR.search(each)) for each in own + none]
    assert found == [True] * len(own) + [False] * len(none)
    places = {
        f"{name}:{number}"
        for path in TESTS.rglob("*.py")
        if not (name := path.relative_to(TESTS).as_posix()).startswith(NO_TESTS)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OWN_GENERATOR.search(line)
    }
    assert places == set(), "take dice() of tests/seeds.py"


RANDOM = """
import pytest
from hypothesis import given, strategies as st
from tests import seeds

def test_dice():
    assert 0, f"drawn {seeds.dice(7).random()} {seeds.content(4).hex()}"

@given(st.lists(st.integers(), min_size=20, max_size=20))
def test_property(numbers):
    global last
    last = numbers

last = None

def test_last():
    assert 0, f"drawn {last}"

def test_no_dice():
    assert 0
"""


SUITE = {"conftest.py": 'pytest_plugins = ["tests.judges", "tests.seeds"]\n', "test_it.py": RANDOM}


def drawn(tmp_path, seed):
    environ = {seeds.VARIABLE: seed} if seed else {}
    done = run_suite(tmp_path / "suite", SUITE, environ=environ)
    assert counts(done) == "3 failed, 1 passed"
    words = re.findall(r"^E +AssertionError: (drawn .*)$", done.stdout, re.MULTILINE)
    assert len(words) == 2
    return words, re.findall(r"^-+ seeds -+\n(.*)$", done.stdout, re.MULTILINE)


def test_a_seed_that_is_given_draws_anew_and_again_the_same_and_is_printed(tmp_path):
    own, said = drawn(tmp_path / "a", "")
    assert said == ["7, 'content' (its own; TRAINYARD_TEST_SEED=N draws anew)"]
    assert drawn(tmp_path / "b", "")[0] == own
    given, said = drawn(tmp_path / "c", "5")
    assert said == ["'5/7', '5/content' (TRAINYARD_TEST_SEED=5; TRAINYARD_TEST_SEED=N draws anew)"]
    assert drawn(tmp_path / "d", "5")[0] == given
    assert [one for one in own if one in given] == []


def test_contents_of_one_test_differ(monkeypatch):
    monkeypatch.delenv(seeds.VARIABLE, raising=False)
    assert seeds.content(100) != seeds.content(100)


def test_hypothesis_has_one_profile_without_bounds_in_time():
    now = settings.default
    assert now is not None
    assert (now.deadline, now.database) == (None, None)
    assert now.derandomize == (seeds.given_seed() is None)
    assert HealthCheck.too_slow in now.suppress_health_check


def test_a_seed_that_is_no_number_is_refused(tmp_path):
    done = run_suite(tmp_path, SUITE, environ={seeds.VARIABLE: "x"})
    assert done.returncode == 4
    assert done.stderr.strip() == "ERROR: TRAINYARD_TEST_SEED is a whole number, not 'x'"
