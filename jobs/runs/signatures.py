"""Keeps a run's files with a store's signature: for their owner only, gone when the run ends."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from jobs.runs.supervision import is_supervised

# Not below outputs/ or logs/, which `launch fetch` copies.
_PATTERN = "inputs/*.sas"


def signature_file(run_dir: Path, name: str) -> Path:
    """Name the file of the signature for an input."""
    return run_dir / "inputs" / f"{name}.sas"


def write_signature(path: Path, text: str) -> None:
    """Write a signature into a file that only its owner can ever read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(text)


def forget_signatures(run_dir: Path) -> None:
    """Delete the signatures of a run that is over."""
    for path in run_dir.glob(_PATTERN):
        path.unlink(missing_ok=True)


def forget_signatures_of_the_dead(workspace: Path) -> None:
    """Delete the signatures of runs that were killed together with their supervisor and watcher.

    What cannot be taken away is left to the next run: it is no fault of the one that asks.
    """
    for path in workspace.glob(f"runs/*/{_PATTERN}"):
        with contextlib.suppress(OSError):
            if not is_supervised(path.parents[1]):
                path.unlink(missing_ok=True)
