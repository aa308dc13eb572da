"""Random tests draw the same until somebody gives another seed, and say what they drew from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import seeds
from tests.suites import counts, run_suite

TESTS = Path(__file__).parent
# Any function of the modules `random` and `numpy.random`, a generator made, and what no seed reaches.
OWN_GENERATOR = re.compile(
    r"\b(?:System)?Random\(|\b(?:default_rng|RandomState|urandom)\("
    r"|(?<![\w.])(?:(?:np|numpy)\.)?random\.[a-z]\w*\("
    r"|(?<![\w.])secrets\.(?:token_\w+|randbelow|randbits|choice)\("
)
# Programs that other Pythons run without pytest, and what is published.
NO_TESTS = (
    *("bench/", "gpu/", "fuzz/jpeg_crop.py", "integration/programs/"),
    *("seeds.py", "test_seeds.py"),
)
# What a program draws, once more by hand; keys and names that no other run has.
MEANT = {
    "documents/promises/of_data.py": "imagenet._choose_size(random.Random(number))",
    "fakes/azureml/": "secrets.token_",
    "integration/test_own_packages.py": "secrets.token_hex(6)",
    "integration/test_stock_keras.py": "np.random.default_rng(rank)",
    "trainer/common/test_epoch_order.py": 'random.Random(f"{seed}/{epoch}")',
}


def own_generators(source: str) -> Iterator[tuple[int, str]]:
    """Lines that draw by a generator of their own; not those of programs' texts within a test."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and (node.end_lineno or 0) > node.lineno:
            lines[node.lineno : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno)
    for number, line in enumerate(lines, 1):
        if OWN_GENERATOR.search(line):
            yield number, line


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("random.Random(3)", True),
        ("x = Random(seed)", True),
        ("SystemRandom().choice(x)", True),
        ("np.random.default_rng(4)", True),
        ("random.uniform(0, 1)", True),
        ("random.shuffle(names)", True),
        ("random.sample(names, 3)", True),
        ("random.randrange(4)", True),
        ("random.randbytes(4)", True),
        ("np.random.rand()", True),
        ("numpy.random.permutation(4)", True),
        ("np.random.RandomState(4)", True),
        ("os.urandom(4)", True),
        ("secrets.token_bytes(4)", True),
        ('x = 1\ny = """\nz\n"""\nrandom.random()', True),
        ("seeds.dice(7).random()", False),
        ("drawn.choice(x)", False),
        ("def draw(made: random.Random, number: int): ...", False),
        ("keras.random.normal((3,))", False),
        ("secrets.read(spec)", False),
        ('PROGRAM = """\nimport random\nrandom.random()\n"""', False),
        ('PROGRAM = f"""\n{x}\nrandom.random()\n"""', False),
    ],
)
def test_a_generator_of_one_s_own_is_known(line, is_one):
    assert bool([*own_generators(line)]) == is_one


def test_no_test_has_a_generator_that_the_variable_does_not_reach():
    found = {
        (name, number, line)
        for path in TESTS.rglob("*.py")
        if not (name := path.relative_to(TESTS).as_posix()).startswith(NO_TESTS)
        for number, line in own_generators(path.read_text(encoding="utf-8"))
    }
    meant = {
        each: place
        for each in found
        for place, text in MEANT.items()
        if each[0].startswith(place) and text in each[2]
    }
    assert {*meant.values()} == MEANT.keys()
    assert found - meant.keys() == set(), "take dice() of tests/seeds.py"


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
