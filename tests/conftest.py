"""What holds for all tests: signals do what they do in a shell, and campaigns show their counts."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests import campaign


def pytest_configure() -> None:
    """Take back what `nohup` or a background shell has the tests, and all they start, ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's counts to the process that prints."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["campaigns"] = campaign.lines()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over a worker's counts."""
    campaign.take_over(getattr(node, "workeroutput", {}).get("campaigns", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts, also where all tests passed."""
    if campaign.lines():
        terminalreporter.section("faults")
        for line in campaign.lines():
            terminalreporter.write_line(line)
