"""Types `launch`, each time in a process of its own: a fork of one that has loaded all of it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.busy import Bound
from tests.fakes.forked_launch import Crash, run_launch

# Longer than anything takes here, however busy the machine.
TIMEOUT_S = 300.0
# Forks what has loaded all of it once; a fork of the tests would take their threads' locks along.
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "tests.fakes.forked_launch",
        *(f"jobs.commands.{verb}" for verb in ("cluster", "data", "env", "ls", "run", "wait")),
        *(f"jobs.commands.{verb}" for verb in ("import", "plan", "planning", "rerun", "show")),
        *("jobs.engines.local.engine", "jobs.launching.start"),
        *("jobs.launching.shared_runs", "jobs.launching.foresee", "jobs.launching.known_runs"),
        *("jobs.blobs.download", "jobs.blobs.upload", "jobs.runs.logs", "jobs.runs.ending"),
        *("jobs.stacks.read", "jobs.stacks.prices", "jobs.stacks.cost", "yaml"),
        *(f"jobs.engines.azure_ml.{name}" for name in ("engine", "retry", "runs", "submission")),
        *("jobs.engines.azure_ml.clusters", "jobs.engines.azure_ml.quota"),
        *("azure.identity", "azure.storage.blob.aio", "msal_extensions"),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Typed:
    """What came of it; `code` is negative where a signal ended it."""

    code: int | None
    out: str
    err: str


class Typing:
    """A launch that may be under way."""

    def __init__(self, child: ForkServerProcess, out: Path, err: Path) -> None:
        self._child, self._out, self._err = child, out, err

    def wait_for(self, is_true: Callable[[str], bool]) -> None:
        """Block until this holds for what it has said on stderr."""
        bound = Bound(TIMEOUT_S)
        while not is_true(said := self._err.read_text()):
            if not self._child.is_alive() or bound.is_passed():
                self._child.kill()
                raise AssertionError(said)
            time.sleep(0.05)

    def interrupt(self) -> None:
        """Ctrl-C."""
        assert self._child.pid is not None
        os.kill(self._child.pid, signal.SIGINT)

    def end(self) -> Typed:
        """Wait for its end."""
        self._child.join(TIMEOUT_S)
        code = self._child.exitcode
        self._child.kill()
        return Typed(code=code, out=self._out.read_text(), err=self._err.read_text())


def begin_launch(
    argv: Sequence[str], *, environ: Mapping[str, str], folder: Path, crash: Crash = ""
) -> Typing:
    """Type `launch ARGV` in a folder, where its output goes to; only one at a time there."""
    return _begin(argv, environ=environ, folder=folder, place=folder, crash=crash)


def launch(
    folder: Path, *words: str | Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Type `launch WORDS` in a folder and wait for its end."""
    argv = [str(word) for word in words]
    given = os.environ if environ is None else environ
    with tempfile.TemporaryDirectory() as place:
        typed = _begin(argv, environ=given, folder=folder, place=Path(place)).end()
    assert typed.code is not None, (argv, typed)
    return subprocess.CompletedProcess(argv, typed.code, typed.out, typed.err)


def _begin(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str],
    folder: Path,
    place: Path,
    crash: Crash = "",
) -> Typing:
    streams = place / "stdout", place / "stderr"
    for each in streams:
        each.write_text("")
    out, err = map(str, streams)
    child = _FORKS.Process(
        target=run_launch, args=(argv, dict(environ), str(folder), out, err, crash)
    )
    child.start()
    return Typing(child, *streams)
