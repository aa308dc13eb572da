"""Types `launch` against the stand-in Azure, each time in a process of its own that may crash."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Literal, NoReturn

from tests.busy import Bound
from tests.fakes.azureml import FakeAzure

# Longer than anything takes here, however busy the machine.
TIMEOUT_S = 300.0
Crash = Literal[
    "",
    "before the intent",
    "after the intent",
    "after the code",
    "after the image",
    "after the record",
    "while the job is sent",
    "after the reply",
]
CRASHES: tuple[Crash, ...] = (
    "before the intent",
    "after the intent",
    "after the code",
    "after the image",
    "after the record",
    "while the job is sent",
    "after the reply",
)
# Forks what has loaded all of it once; a fork of the tests would take their threads' locks along.
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "jobs.cli",
        "jobs.engines.azure_ml.submission",
        "jobs.engines.azure_ml.runs",
        "azure.identity",
        "azure.core",
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


class AzureLaunch:
    """A practitioner at one machine: an environment file, a state folder, jobs."""

    def __init__(
        self, azure: FakeAzure, folder: Path, *, images: Mapping[str, str] | None = None
    ) -> None:
        self.azure = azure
        self.folder = folder
        self.environ = {**azure.environ, "XDG_STATE_HOME": str(folder / "state")}
        self.env_file = folder / "dev.json"
        pinned = {"python": f"registry.azurecr.io/python@sha256:{'a' * 64}"}
        self.env_file.write_text(json.dumps(azure.environment(images=images or pinned)))

    def write_job(self, program: str = "print('hello')", **keys: Any) -> Path:
        """A job file with a script beside it; JSON is YAML."""
        code = self.folder / "job"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(program)
        job = {"name": "first", "image": "python", "script": "train.py", **keys}
        path = code / "job.yaml"
        path.write_text(json.dumps(job))
        return path

    def type(self, *words: str | Path, crash: Crash = "", with_environment: bool = True) -> Typed:
        """Run `launch WORDS --env FILE`."""
        environment = ["--env", str(self.env_file)] if with_environment else []
        return self._begin([*map(str, words), *environment], crash).end()

    def begin(self, *words: str | Path) -> Typing:
        """The same, not waited for; what is typed meanwhile needs a machine of its own."""
        return self._begin([*map(str, words), "--env", str(self.env_file)], "")

    def _begin(self, argv: Sequence[str], crash: Crash) -> Typing:
        streams = self.folder / "stdout", self.folder / "stderr"
        for each in streams:
            each.write_text("")
        out, err = map(str, streams)
        child = _FORKS.Process(
            target=_launch, args=(argv, self.environ, str(self.folder), out, err, crash)
        )
        child.start()
        return Typing(child, *streams)

    def run_dirs(self) -> list[Path]:
        """What this machine knows of."""
        return sorted(self.folder.glob("state/trainyard/*/runs/*"))


def _launch(
    argv: Sequence[str], environ: Mapping[str, str], folder: str, out: str, err: str, crash: Crash
) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    from jobs.cli import main

    if crash:
        _arm(crash)
    code = main(list(argv))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _arm(crash: Crash) -> None:
    """Have this process killed at a point of a submit."""
    from jobs.engines.azure_ml import sender, submission

    way = sender.JobSender
    if crash == "before the intent":
        _die_in(submission, "write_intent", is_before=True)
    elif crash == "after the intent":
        _die_in(submission, "write_intent")
    elif crash == "after the code":
        _die_in(sender, "upload")
    elif crash == "after the image":
        _die_in(sender, "send_version")
    elif crash == "after the record":
        _die_in(submission.Submission, "prepare")
    elif crash == "after the reply":
        _die_in(way, "put")
    else:
        put = way.put

        def put_and_die(*args: Any) -> None:
            # The request is on its way, and nobody reads the answer.
            _die_in(HTTPConnection, "getresponse", is_before=True)
            put(*args)

        way.put = put_and_die  # type: ignore[method-assign]


def _die_in(owner: Any, name: str, *, is_before: bool = False) -> None:
    real: Callable[..., Any] = getattr(owner, name)

    def fatal(*args: Any, **keywords: Any) -> NoReturn:
        if not is_before:
            real(*args, **keywords)
        _die()

    setattr(owner, name, fatal)


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    raise AssertionError
