"""Gives random tests their seeds, all of them by TRAINYARD_TEST_SEED; a failure prints what it used.

A pytest plugin, and what tests draw from. Without the variable each test draws the same in every
run; with TRAINYARD_TEST_SEED=N it draws something else, which the same N gives again. Hypothesis
obeys it too, by the one profile there is.
"""

from __future__ import annotations

import os
import random
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

VARIABLE = "TRAINYARD_TEST_SEED"
# What the test that runs now has drawn from, and the generator of its contents.
_used: list[str] = []
_contents: list[random.Random] = []


def given_seed() -> int | None:
    """The seed that somebody has asked for."""
    text = os.environ.get(VARIABLE, "")
    try:
        return int(text) if text else None
    except ValueError:
        message = f"{VARIABLE} is a whole number, not {text!r}"
        raise pytest.UsageError(message) from None


def dice(own: int | str) -> random.Random:
    """The generator of a test; `own` tells it from others, and is its seed where none is given."""
    given = given_seed()
    seed = own if given is None else f"{given}/{own}"
    _used.append(f"{seed!r}")
    return random.Random(seed)


def content(num_bytes: int) -> bytes:
    """Bytes that compress badly and differ from all that the test was given before."""
    if not _contents:
        _contents.append(dice("content"))
    return _contents[0].randbytes(num_bytes)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the profile of hypothesis: no bound in time, nothing kept, and its seed by ours."""
    given = given_seed()
    settings.register_profile(
        "trainyard",
        deadline=None,
        database=None,
        derandomize=given is None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("trainyard")
    if given is not None:
        config.option.hypothesis_seed = str(given)


def pytest_runtest_logstart() -> None:
    """Begin anew with each test."""
    _used.clear()
    _contents.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell with a failure which seeds it used."""
    report = yield
    is_property = hasattr(getattr(item, "obj", None), "hypothesis")
    if report.failed and (_used or is_property):
        given = os.environ.get(VARIABLE)
        how = f"{VARIABLE}={given}" if given else "its own"
        used = ", ".join(_used) or "hypothesis"
        report.sections.append(("seeds", f"{used} ({how}; {VARIABLE}=N draws anew)"))
    return report
