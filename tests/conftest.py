"""What holds for all tests: signals as in a shell, long files first, campaigns' counts."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import campaign

if TYPE_CHECKING:
    from tests.fakes.torch_ranks import Zygote

pytest_plugins = ["tests.judges", "tests.second_proofs", "tests.seeds", "tests.times"]

TESTS = Path(__file__).parent
# Begun last, a file of these would leave all other processes idle. Half of them wait most of their
# time, for servers and by the clock, so that they go beside the others, which compute.
COMPUTING = ("fuzz", "gpu", "integration", "trainyard/test_notebooks")
WAITING = ("faults", "integration/azure", "integration/local_stack", "tools/prove_azure")


def pytest_configure() -> None:
    """Take back what `nohup` or a background shell has the tests, and all they start, ignore."""
    # Thousands of processes are started; one that may write no bytecode, and those after it, compile
    # all that they import.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # What tests plan and start asks nobody for prices.
    os.environ.setdefault("TRAINYARD_PRICES", "table")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Until all tests are collected nearly all that is made stays.
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage again, but never among the collected tests: nor do the forks of this process."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's counts to the process that prints."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["campaigns"] = campaign.lines()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, computing and waiting in turn (`--no-loadscope-reorder` keeps it)."""
    turns: dict[Path, tuple[bool, int, bool]] = {}
    seen: Counter[tuple[bool, bool]] = Counter()
    for path in dict.fromkeys(item.path for item in items):
        name = path.relative_to(TESTS).as_posix()
        waits = name.startswith(WAITING)
        is_short = not waits and not name.startswith(COMPUTING)
        turns[path] = (is_short, seen[is_short, waits], waits)
        seen[is_short, waits] += 1
    items.sort(key=lambda item: turns[item.path])


@pytest.fixture(autouse=True)
def _proxies_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have urllib read its proxies in each test: it keeps those of the first request for ever."""
    monkeypatch.setattr("urllib.request._opener", None)


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is cached of a test lie outside of its own folder, whose files it may compare."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


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
    from tests import needs
    from tests.fakes.torch_ranks import Zygote

    made = Zygote(needs.runtime(image), folders.mktemp("zygote"), modules)
    yield made
    made.close()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ranks preload; one for all tests of a process, since a compiler makes it."""
    from jobs.engines.local.loopback import loopback_library

    cache = str(tmp_path_factory.mktemp("cache"))
    return loopback_library({**os.environ, "XDG_CACHE_HOME": cache})


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
