"""Reading the logs of all ranks of a run directory: merged by time, by byte range, followed.

A line is `<ISO time, UTC, microseconds> <text>`; each rank's file is in order of time, so merging
is a merge of sorted streams, `since` a binary search, and `tail` a read from the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jobs.spec import LogLine


def read_logs(
    run_dir: Path,
    ranks: Sequence[int] | None = None,
    *,
    since: str | None = None,
    tail: int | None = None,
    grep: re.Pattern[str] | None = None,
    is_over: Callable[[], bool] | None = None,
) -> Iterator[LogLine]:
    """Yield log lines merged by time; of all ranks when `ranks` is None.

    `since` is an ISO time as the lines carry it (see `since_time`), `tail` keeps the last lines
    that match, of all ranks together. With `is_over` the reading goes on as lines are written,
    until `is_over()` is true and the last bytes were read.
    """
    raise NotImplementedError


def since_time(text: str, now_s: float) -> str:
    """What `--since` means: a duration before now (`90s`, `10m`, `2h`, `1d`) or an ISO time.

    Raises LaunchError for anything else.
    """
    raise NotImplementedError
