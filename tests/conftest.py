"""What holds for all tests: signals as in a shell, the longest files first, campaigns' counts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import campaign

if TYPE_CHECKING:
    from tests.fakes.torch_ranks import Zygote

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


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Forks PyTorch's ranks; one for all tests of a process, since it takes seconds to load."""
    yield from _zygote_of("pytorch", tmp_path_factory)


@pytest.fixture(scope="session")
def tensorflow_zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Forks TensorFlow's."""
    programs = ("trainer.tf.resnet50", "trainer.tfkeras.resnet50", "horovod.tensorflow")
    tiny = "tests.integration.programs.tf_tiny"
    yield from _zygote_of("tensorflow", tmp_path_factory, *programs, tiny)


def _zygote_of(image: str, folders: pytest.TempPathFactory, *modules: str) -> Iterator[Zygote]:
    from jobs.contracts.errors import EnvironmentFailure
    from jobs.images.runtimes import PROJECT, runtime_python
    from tests.fakes.torch_ranks import Zygote

    try:
        python = runtime_python(image, PROJECT)
    except EnvironmentFailure as error:
        pytest.skip(f"{error.message}; {error.hint}")
    made = Zygote(python, folders.mktemp("zygote"), modules)
    yield made
    made.close()


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
