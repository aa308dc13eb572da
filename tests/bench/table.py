"""The table of results: one row a goal, written as Markdown with its hardware and date."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Row:
    """One goal: ours against a peer; `ratio` is ours divided by the peer's."""

    goal: str
    ours: str
    peer: str
    ratio: float
    at_most: float

    @property
    def met(self) -> bool:
        """Whether the goal holds."""
        return self.ratio <= self.at_most


def write_table(rows: Sequence[Row], notes: Sequence[str], path: Path) -> str:
    """Write the Markdown and give it back."""
    lines = [
        "# One machine: starts, launches, listing, no-op `pulumi up`",
        "",
        f"Command: `make bench`. Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}. "
        f"Hardware: {_hardware()}.",
        "",
        "Every figure is the median of runs taken in turn in one session; a ratio is ours "
        "divided by the peer's.",
        "",
        "| goal | ours | peer | ratio | at most | met |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {row.goal} | {row.ours} | {row.peer} | {row.ratio:.2f} | {row.at_most:.2f} "
            f"| {'yes' if row.met else 'NO'} |"
            for row in rows
        ),
        "",
        *notes,
    ]
    text = "\n".join(lines).rstrip() + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return text


def _hardware() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {model}, {memory_gib:.0f} GiB, Linux {platform.release()}"
