"""Keeps what was done and found in a file, so that a run that was cut off goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.files import write_file
from jobs.host.structs import prepared

Outcome = Literal["done", "failed", "left out"]


class Verdict(Struct, frozen=True, kw_only=True):
    """Finding for one assumption; `words` are Azure's own where it does not hold."""

    holds: bool
    step: str
    words: str = ""


class StepRecord(Struct, frozen=True, kw_only=True):
    """End of one step."""

    outcome: Outcome
    seconds: float
    words: str = ""


class Record(Struct, kw_only=True):
    """Progress on one stack.

    `up_since_s` is the time of its `up` while it may exist, `spent` the estimate in USD so far,
    `names` are those of runs and resources that later steps ask for, `saved_s` is the time of the
    last change.
    """

    stack: str
    location: str
    steps: dict[str, StepRecord] = {}
    verdicts: dict[str, Verdict] = {}
    names: dict[str, str] = {}
    up_since_s: float | None = None
    spent: float = 0.0
    saved_s: float = 0.0
    generation: int = 1

    def holds(self, unknown: str, step: str) -> None:
        """Note that an assumption holds, unless it was denied before."""
        if unknown not in self.verdicts:
            self.verdicts[unknown] = Verdict(holds=True, step=step)

    def denies(self, unknown: str, step: str, words: str) -> None:
        """Note that an assumption does not hold; the first words are kept."""
        known = self.verdicts.get(unknown)
        if known is None or known.holds:
            self.verdicts[unknown] = Verdict(holds=False, step=step, words=words)

    def is_done(self, step: str) -> bool:
        """Tell whether a step has succeeded."""
        found = self.steps.get(step)
        return found is not None and found.outcome == "done"


def read_record(path: Path, stack: str, location: str) -> Record:
    """Read what an earlier call has left; a new record where there is none."""
    if not path.exists():
        return Record(stack=stack, location=location)
    try:
        return msgspec.json.decode(path.read_bytes(), type=prepared(Record))
    except (OSError, msgspec.DecodeError) as error:
        message = f"{path} cannot be read: {error}"
        raise EnvironmentFailure(message, hint=f"rm {path}; `pulumi destroy -s {stack}`") from None


def write_record(path: Path, record: Record) -> None:
    """Write the record whole."""
    record.saved_s = time.time()
    write_file(path, msgspec.json.format(msgspec.json.encode(record), indent=1), mode=0o600)
