"""Types `pulumi`, `launch` and `az` as a person would, each with a limit of time, and keeps a log."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.private import make_folder
from tools.project import Project
from tools.prove_azure.cost import Prices
from tools.prove_azure.record import Record, write_record

_TELLING = re.compile(r"error|Code=|Message=|refus|denied|cannot|failed|FAILED", re.IGNORECASE)
# Pulumi's lines of a resource's progress; the same error stands in its diagnostics.
_PROGRESS = re.compile(r"\s*(@|[-+~]+ )")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 900
LONG_S = 5400.0
TERMINATION_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Seconds to wait for what Azure does in its own time; tests wait less."""

    role_wait_s: int = 300
    roles_s: float = 600.0
    pause_s: float = 30.0
    looks: int = 20
    limit: str = "3m"


@dataclass(frozen=True, kw_only=True)
class Said:
    """End of a command and its two streams."""

    typed: str
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """The telling lines: those of errors, else the last ones."""
        lines = [
            line
            for line in _COLOURS.sub("", f"{self.err}\n{self.out}").splitlines()
            if line.strip()
        ]
        found: dict[str, None] = {}
        for line, after in zip(lines, [*lines[1:], ""], strict=True):
            if _TELLING.search(line) and not _PROGRESS.match(line):
                found[line.strip()] = None
                # Pulumi breaks a long error into lines that stand further to the right.
                if _indent(after) > _indent(line):
                    found[after.strip()] = None
        text = "\n".join(found or [line.strip() for line in lines[-3:]])
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class Denied(Exception):
    """A step cannot go on; `unknown` is the assumption that does not hold, where it is known."""

    def __init__(self, words: str, unknown: str | None = None) -> None:
        super().__init__(words)
        self.words = words
        self.unknown = unknown


def deny(words: str, unknown: str | None = None) -> NoReturn:
    """End the step that is under way."""
    raise Denied(words, unknown)


@dataclass(kw_only=True)
class Session:
    """One stack under proof, and everything that its steps use."""

    project: Project
    folder: Path
    stack: str
    record: Record
    prices: Prices
    environ: Mapping[str, str]
    patience: Patience
    settings: dict[str, object]
    write_settings: Callable[[dict[str, object]], None]
    jobs: Path
    step: str = ""
    lines: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def pulumi(self, *words: str, check: bool = True, limit_s: float = LONG_S) -> Said:
        """Type a command of Pulumi for the stack."""
        program = str(self.project.venv / "bin" / "pulumi")
        options = ["-s", self.stack, "--non-interactive", "--color", "never"]
        return self._type([program, *words, *options], "pulumi", check=check, limit_s=limit_s)

    def launch(self, *words: str, check: bool = True, limit_s: float = LONG_S) -> Said:
        """Type a command of `launch` for the stack."""
        program = [sys.executable, "-P", "-m", "jobs.cli"]
        argv = [*program, *words, "-s", self.stack]
        return self._type(argv, "launch", check=check, limit_s=limit_s)

    def launch_here(self, *words: str) -> Said:
        """Type a command of `launch` that asks no stack."""
        argv = [sys.executable, "-P", "-m", "jobs.cli", *words]
        return self._type(argv, "launch", check=True, limit_s=LONG_S)

    def az(self, *words: str, check: bool = True, limit_s: float = 600.0) -> Said:
        """Type a command of Azure's own."""
        return self._type(["az", *words], "az", check=check, limit_s=limit_s)

    def save(self) -> None:
        """Write down what was found so far."""
        write_record(self.folder / "record.json", self.record)

    def holds(self, *unknowns: str) -> None:
        """Note assumptions that hold."""
        for each in unknowns:
            self.record.holds(each, self.step)

    def denies(self, unknown: str, words: str) -> None:
        """Note an assumption that does not hold, with the words."""
        self.record.denies(unknown, self.step, words)

    def _type(self, argv: list[str], name: str, *, check: bool, limit_s: float) -> Said:
        typed = shlex.join(
            [name, *argv[argv.index("jobs.cli") + 1 :]] if name == "launch" else argv
        )
        make_folder(self.folder)
        out, err = self.folder / "stdout", self.folder / "stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            try:
                child = subprocess.Popen(
                    argv,
                    cwd=self.project.root,
                    env={**os.environ, **self.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    # Ctrl-C is for this program, which then ends what it has started.
                    start_new_session=True,
                )
            except FileNotFoundError:
                message = f"`{argv[0]}` is not installed"
                raise EnvironmentFailure(message, hint="docs/prove-azure.md") from None
            code = _wait(child, limit_s)
        texts = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
        said = Said(typed=typed, code=code, out=next(texts), err=next(texts))
        self._log(said)
        if check and code != 0:
            deny(said.words or f"`{typed}` ended with code {code}")
        return said

    def _log(self, said: Said) -> None:
        with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            at = time.strftime("%H:%M:%S", time.gmtime())
            log.write(f"{at} [{self.step}] {said.typed} -> {said.code}\n{said.out}{said.err}\n")


def _wait(child: subprocess.Popen[bytes], limit_s: float) -> int:
    """Wait for a program; interrupt it at Ctrl-C and at the limit, as its user would."""
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        _interrupt(child)
        return child.returncode or 1
    except KeyboardInterrupt:
        _interrupt(child)
        raise


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGINT)
    try:
        child.wait(TERMINATION_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
