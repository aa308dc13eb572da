"""The table of results as Markdown: one row a goal, with hardware and date."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Row:
    """One goal: ours against a peer; `ratio` is ours divided by the peer's.

    Exactly one of the bounds is given: `at_most` for times, `at_least` for rates.
    """

    goal: str
    ours: str
    peer: str
    ratio: float
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        assert (self.at_most is None) != (self.at_least is None), self.goal

    @property
    def bound(self) -> str:
        """The goal's bound as text."""
        return f"<= {self.at_most:.2f}" if self.at_least is None else f">= {self.at_least:.2f}"

    @property
    def met(self) -> bool:
        """Whether the goal holds."""
        if self.at_least is not None:
            return self.ratio >= self.at_least
        return self.at_most is not None and self.ratio <= self.at_most


def table_text(title: str, command: str, rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Give the page's Markdown."""
    lines = [
        f"# {title}",
        "",
        f"Command: `{command}`. Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}. "
        f"Hardware: {hardware()}.",
        "",
        "Every figure is the median of runs taken in turn in one session; a ratio is ours "
        "divided by the peer's.",
        "",
        "| goal | ours | peer | ratio | bound | met |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {row.goal} | {row.ours} | {row.peer} | {row.ratio:.2f} | {row.bound} "
            f"| {'yes' if row.met else 'NO'} |"
            for row in rows
        ),
        "",
        *notes,
    ]
    return "\n".join(lines).rstrip() + "\n"


def replace_table(page: Path, text: str) -> None:
    """Write the page anew, and keep what people wrote below it under headings of its own."""
    _, heading, written = page.read_text().partition("\n## ") if page.exists() else ("", "", "")
    page.write_text(text + heading + written)


def hardware() -> str:
    """Describe this machine, without its name."""
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
