"""What holds for all tests: signals as in a shell, the longest files first, campaigns' counts."""

from __future__ import annotations

import os
import signal
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests import campaign

TESTS = Path(__file__).parent
# Each takes half a minute or more: begun last, one of them would leave all other processes idle.
# These compute, with two ranks or more ...
COMPUTING = (
    "integration/test_maskrcnn.py",
    "faults/test_resume_tf.py",
    "integration/test_training.py",
    "integration/test_resnet50_tf.py",
    "integration/test_resnet50_pytorch.py",
    "integration/test_parity.py",
    "integration/test_hymenoptera.py",
    "faults/test_resume_pytorch.py",
    "integration/test_local_engine_deaths.py",
    "integration/test_data_to_training.py",
    "integration/test_local_engine_scripts.py",
    "integration/azureml/test_training.py",
)
# ... and these wait half of their time, for servers and looks by the clock, so they go beside.
WAITING = (
    "integration/local_stack/test_killed.py",
    "integration/azureml/test_follow.py",
    "integration/azureml/test_submit.py",
    "integration/local_stack/test_faults.py",
    "integration/azureml/test_fake_azure.py",
    "integration/local_stack/test_lifecycle.py",
    "integration/azureml/test_ranks.py",
    "integration/azureml/test_fake_azure_sdks.py",
    "integration/azureml/test_engine_contract.py",
    "integration/azure_stack/test_stages.py",
    "integration/azure_stack/test_dev.py",
    "integration/azure_stack/test_troubles.py",
)
LONGEST = tuple(chain.from_iterable(zip(COMPUTING, WAITING, strict=True)))
LONG = ("integration", "faults")


def pytest_configure() -> None:
    """Take back what `nohup` or a background shell has the tests, and all they start, ignore."""
    # Thousands of processes are started, and each would compile all that it imports. (Where files
    # are not to be written, this process was told so.)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # What tests plan and start asks nobody for prices.
    os.environ.setdefault("TRAINYARD_PRICES", "table")
    assert [each for each in LONGEST if not (TESTS / each).is_file()] == []
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's counts to the process that prints."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["campaigns"] = campaign.lines()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest (`--no-loadscope-reorder` keeps that order)."""
    items.sort(key=lambda item: _place(item.path.relative_to(TESTS)))


def _place(path: Path) -> int:
    if path.as_posix() in LONGEST:
        return LONGEST.index(path.as_posix())
    return len(LONGEST) + (path.parts[0] not in LONG)


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
