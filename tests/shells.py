"""Press Tab for tests: ask `launch` as typer's function of each shell does."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from unittest import mock

from jobs.cli import main
from jobs.commands.completers import LONGEST_S
from tests.busy import how_busy

LAUNCH = Path(sys.executable).with_name("launch")
MOST_ASKED, BUSY = 5, 1.5
Answer = TypeVar("Answer")


def press_tab(
    line: str,
    shell: str = "bash",
    *,
    cwd: Path | None = None,
    is_once: bool = False,
    **variables: str,
) -> str:
    """Give what `launch` answers a shell at the end of the line; nothing is said beside it."""
    env = {**os.environ, **_asked(line, shell), **variables}

    def answer() -> str:
        done = subprocess.run(
            [LAUNCH], env=env, cwd=cwd, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr.strip()) == (0, "")
        return done.stdout.strip("\n")

    return answer() if is_once else ask_in_time(answer)


def ask_in_time(ask: Callable[[], Answer]) -> Answer:
    """Ask once more where `launch` ended itself without an answer because the machine is busy."""
    for _ in range(MOST_ASKED - 1):
        began_s = time.monotonic()
        answer = ask()
        if answer or time.monotonic() - began_s < LONGEST_S or how_busy() < BUSY:
            return answer
    return ask()


def answer_tab(line: str, shell: str = "bash", *, cwd: Path, **variables: str) -> str:
    """Give what `press_tab` gives, answered by this process, which has loaded all that it needs."""
    out, err = io.StringIO(), io.StringIO()
    with (
        _rich_comes_back(),
        mock.patch("jobs.commands.completers._end_in_time"),  # of this process
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, {**_asked(line, shell), **variables}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main([])
    assert (code, err.getvalue().strip()) == (0, "")
    return out.getvalue().strip("\n")


@contextlib.contextmanager
def _rich_comes_back() -> Iterator[None]:
    """Let what follows load rich, which an answer keeps from being loaded by its process."""
    before = sys.modules.get("rich")
    try:
        yield
    finally:
        del sys.modules["rich"]
        if before is not None:
            sys.modules["rich"] = before


def _asked(line: str, shell: str) -> Mapping[str, str]:
    return {"_LAUNCH_COMPLETE": f"complete_{shell}", **_typed(line, shell)}


def _typed(line: str, shell: str) -> Mapping[str, str]:
    if shell == "bash":
        words = [*line.split(), *([""] if line.endswith(" ") else [])]
        return {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    asked = {"_TYPER_COMPLETE_ARGS": line}
    if shell == "fish":
        return asked | {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    if shell == "powershell":
        last = "" if line.endswith(" ") else line.rsplit(maxsplit=1)[-1]
        return asked | {"_TYPER_COMPLETE_WORD_TO_COMPLETE": last}
    return asked
