"""Lets no test vanish from CI: no skip that is not listed, no file or function left out.

A pytest plugin. CI is told by TRAINYARD_CI=1 (`.ci/run`); elsewhere it only says at the end what
was not tried, and what that would have proved.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator

import pytest

from tests.skips import CAMPAIGNS, VARIABLE, find_allowed

DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_ci() -> bool:
    return os.environ.get(VARIABLE) == "1"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a test's skip into its failure, in CI where no row allows it."""
    report = yield
    if is_ci() and report.skipped:
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole file, and what was left out of one, into its failure in CI."""
    report = yield
    if is_ci() and report.skipped:
        _refuse_skip(report)
    if is_ci() and report.passed and (lost := _find_lost(collector, report.result)):
        text = f"not collected, so never judged: {', '.join(lost)}"
        report.outcome, report.longrepr = "failed", text
    return report


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Refuse to leave out, in CI, anything but the long campaigns; of those, nothing where they run.

    Containers are built by `make images` alone.
    """
    is_campaign = items[0].config.option.markexpr == CAMPAIGNS
    left_out = [
        each
        for each in items
        if (each.get_closest_marker("faults") is not None) == is_campaign
        and not (is_campaign and each.get_closest_marker("images"))
    ]
    if is_ci() and left_out:
        all_of = "what" if is_campaign else "all but what"
        fail_collection(
            left_out[0],
            f"left out in CI, which runs {all_of} is marked `faults`: {left_out[0].nodeid}, "
            f"one of {len(left_out)}",
        )


def fail_collection(item: pytest.Item, text: str) -> None:
    """End the run with these words: what is raised while a worker collects is not shown."""
    failed = pytest.CollectReport(item.nodeid, "failed", text, result=[])
    item.ihook.pytest_collectreport(report=failed)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was not tried, by reason."""
    places: dict[str, list[str]] = defaultdict(list)
    for report in terminalreporter.stats.get("skipped", []):
        places[_reason(report)].append(report.nodeid)
    if places:
        terminalreporter.section("not tried")
    for reason, tests in sorted(places.items()):
        for line in _describe(reason, tests):
            terminalreporter.write_line(line)


def _describe(reason: str, tests: list[str]) -> Iterable[str]:
    """The lines about one reason."""
    row = find_allowed(reason)
    yield f"{len(tests)} x {reason}"
    if row is not None:
        yield f"    would have proved: {row.proves}"
        return
    yield "    in CI a failure (no row of tests/skips.py); would have proved:"
    yield from (f"      {each}" for each in tests)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = _reason(report)
    if find_allowed(reason) is not None:
        return
    vars(report).pop("wasxfail", None)
    report.outcome = "failed"
    report.longrepr = (
        f"{report.nodeid} was skipped in CI: {reason}\n"
        "No row of tests/skips.py allows that. Mend what is missing, or, where it may be missing, "
        "add a row:\n"
        f"    Skip(reason={re.escape(reason)!r}, why=..., proves=...)"
    )


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why it was skipped, or is expected to fail."""
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def _find_lost(
    collector: pytest.Collector, found: Iterable[pytest.Item | pytest.Collector]
) -> list[str]:
    """Name what a folder, a file or a class has of tests that nothing was collected for."""
    if isinstance(collector, pytest.Directory):
        # Beside the tests' folder others lie, such as an environment with tests of its own.
        is_root = collector.path == collector.config.rootpath
        files = collector.path.glob("test_*.py" if is_root else "**/test_*.py")
        names = {each.relative_to(collector.path).parts[0] for each in files}
        return sorted(names - {each.path.name for each in found})
    written = {name for name in _defined(collector) if name.startswith(("test_", "Test"))}
    return sorted(written - {getattr(each, "originalname", each.name) for each in found})


def _defined(collector: pytest.Collector) -> Iterable[str]:
    """The functions and classes of a file, the methods of a class, inherited ones included."""
    if not isinstance(collector, pytest.Class | pytest.Module) or collector.path.suffix != ".py":
        return ()
    tree = ast.parse(collector.path.read_text(encoding="utf-8"))
    if isinstance(collector, pytest.Module):
        return _definitions(tree)
    bodies = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef) and each.name == collector.name
    ]
    return {*dir(collector.obj), *(name for each in bodies for name in _definitions(each))}


def _definitions(node: ast.AST) -> Iterator[str]:
    """What a body defines, those under an `if`, a `try` or a `with` included."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, DEFINITION):
            yield each.name
        elif not isinstance(each, ast.expr):
            yield from _definitions(each)
