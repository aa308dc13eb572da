"""Follow a run: report its waiting, then write every rank's lines until it is over.

Where an engine leaves it to us, what was preempted is started again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import LogLine, RunHandle, RunState, RunStatus
from jobs.engines.base import Attended, Engine
from jobs.host import console
from jobs.host.console import Style, styled
from jobs.launching.status_line import StatusLine, status_line
from jobs.runs.outcome import COLOURS

RANK_COLOURS: tuple[Style, ...] = ("cyan", "green", "yellow", "magenta", "blue", "red")
LONGEST_SEEN = 4000  # characters of a line on a terminal
# A run that starts at once is seen at once; one that waits for hours costs nothing.
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


def follow(engine: Engine, handle: RunHandle, ranks: Sequence[int] | None = None) -> RunStatus:
    """Follow the run from its present state to its end; gives its final status."""
    status = wait_until_started(engine, handle)
    lines = lines_to_the_end(engine, handle, ranks)
    with status_line(engine, handle, status) as line:
        write_lines(lines, engine.store.record(handle).plan.spec.num_processes, line=line)
    return wait_until_over(engine, handle)


def lines_to_the_end(
    engine: Engine, handle: RunHandle, ranks: Sequence[int] | None, **filters: Any
) -> Iterator[LogLine]:
    """Yield a run's lines until it is over for good; `filters` are those of `Engine.logs`."""
    while True:
        yield from engine.logs(handle, ranks, follow=True, **filters)
        status = wait_until_over(engine, handle)
        if not (isinstance(engine, Attended) and engine.begin_again(handle)):
            return
        wait_until_started(engine, handle)
        # What was written before is shown already.
        filters = {**filters, "since": status.ended, "tail": None}


def wait_until_started(engine: Engine, handle: RunHandle) -> RunStatus:
    """Wait while the run is queued or prepared; print every change and its reason."""
    said: tuple[RunState, str | None] | None = None
    pauses = Pauses()
    while True:
        status = engine.store.status(handle)
        if status.state not in (RunState.QUEUED, RunState.PREPARING):
            return status
        if (status.state, status.reason) != said and (status.reason or pauses.waited_s > 1):
            said = (status.state, status.reason)
            console.say(state_line(status))
        if isinstance(engine, Attended):
            for line in engine.preparation_news(handle):
                console.say(styled(line, "dim", stream=sys.stderr))
        pauses.sleep()


def wait_until_over(engine: Engine, handle: RunHandle, timeout_s: float | None = None) -> RunStatus:
    """Wait for the end of the run, at most `timeout_s`; gives how it stands then."""
    pauses = Pauses()
    while True:
        status = engine.store.status(handle)
        is_late = timeout_s is not None and pauses.waited_s >= timeout_s
        if status.state.is_terminal() or is_late:
            return status
        left_s = None if timeout_s is None else timeout_s - pauses.waited_s
        pauses.sleep(at_most_s=left_s)


def see_through(engine: Engine, handle: RunHandle, timeout_s: float | None = None) -> RunStatus:
    """Wait until the run is over for good, at most `timeout_s`; gives how it stands then."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)
        status = wait_until_over(engine, handle, left_s)
        is_over = status.state.is_terminal()
        if not (is_over and isinstance(engine, Attended) and engine.begin_again(handle)):
            return status


def write_lines(
    lines: Iterable[LogLine],
    num_logs: int,
    *,
    has_times: bool = False,
    line: StatusLine | None = None,
) -> None:
    """Write lines to stdout, each behind its rank in brackets and in the rank's colour.

    They come above the status line, where there is one.
    """
    width = len(str(max(num_logs - 1, 0)))
    is_seen = console.is_terminal(sys.stdout)
    prefixes: dict[int, str] = {}
    hidden = line.hidden if line is not None else nullcontext
    for each in lines:
        prefix = prefixes.get(each.rank)
        if prefix is None:
            colour = RANK_COLOURS[each.rank % len(RANK_COLOURS)]
            prefix = styled(f"[{each.rank:>{width}}]", colour, stream=sys.stdout)
            prefixes[each.rank] = prefix
        stamp = f" {each.ts}" if has_times else ""
        text = each.text
        if is_seen and len(text) > LONGEST_SEEN:
            text = f"{text[:LONGEST_SEEN]} ... ({len(text)} characters; files and pipes get all)"
        with hidden():
            console.out(f"{prefix}{stamp} {text}")


def state_line(status: RunStatus) -> str:
    """Write a run's state in one line."""
    state = styled(status.state.value, COLOURS[status.state], stream=sys.stderr)
    return f"{status.id} {state}" + (f": {status.reason}" if status.reason else "")


class Pauses:
    """Sleeps that grow with the time waited, so that quick runs are seen quickly."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    @property
    def waited_s(self) -> float:
        """Seconds since the first."""
        return time.monotonic() - self._began_s

    def sleep(self, *, at_most_s: float | None = None) -> None:
        """Sleep a tenth of the time waited, within bounds."""
        pause_s = min(max(self.waited_s / 10, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        time.sleep(pause_s if at_most_s is None else max(min(pause_s, at_most_s), 0))


def preparation_lines(engine: Engine, handle: RunHandle) -> Iterator[str]:
    """Yield the lines, each file's after its name; raise LaunchError for a run of this machine."""
    if not isinstance(engine, Attended):
        message = f"{handle.id} is a local run, which has no preparation log"
        raise LaunchError(message, hint=f"launch show {handle.id}")
    shown = ""
    for name, line in engine.preparation(handle):
        if name != shown:
            yield styled(f"==> {name} <==", "bold")
            shown = name
        yield line
