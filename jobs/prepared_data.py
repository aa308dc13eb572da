"""Runs `trainer.data.prepare` as a process and reads its events."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs.errors import EnvironmentFailure, LaunchError

DATASETS = ("digits",)


def run_prepare(dataset: str, folder: Path, *, tell: Callable[[str], None]) -> dict[str, Any]:
    """Make the folder; `tell` hears each step. Gives the program's last event.

    Raises LaunchError for an unknown dataset, EnvironmentFailure where the program fails.
    """
    if dataset not in DATASETS:
        message = f"no dataset `{dataset}` can be prepared"
        raise LaunchError(message, hint=f"launch data prepare {DATASETS[0]} --to DIR")
    # -P: a folder `trainer` where `launch` was typed must not stand in for ours.
    program = [sys.executable, "-P", "-m", "trainer.data.prepare", dataset]
    last: dict[str, Any] = {}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [*program, "--to", str(folder), "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            last = json.loads(line)
            tell(str(last["text"]))
        process.wait()
        errors.seek(0)
        said = errors.read().strip()
    if process.returncode != 0 or last.get("event") != "done":
        reason = said.splitlines()[-1] if said else f"exit code {process.returncode}"
        # The program has one line for both; see trainer.common.errors.
        reason, _, hint = reason.removeprefix("error: ").partition(" (hint: ")
        message = f"`{dataset}` was not prepared: {reason}"
        raise EnvironmentFailure(
            message, hint=hint.removesuffix(")") or "mend this and type the same again"
        )
    return last
