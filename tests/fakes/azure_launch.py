"""Types `launch` against the stand-in Azure, each time in a process of its own that may crash."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.busy import Bound
from tests.fakes.azureml import FakeAzure
from tests.fakes.forked_launch import Crash, run_launch
from tests.fakes.launch_forks import FORKS, TIMEOUT_S


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
        child = FORKS.Process(
            target=run_launch, args=(argv, self.environ, str(self.folder), out, err, crash)
        )
        child.start()
        return Typing(child, *streams)

    def run_dirs(self) -> list[Path]:
        """What this machine knows of."""
        return sorted(self.folder.glob("state/trainyard/*/runs/*"))
