"""Ends a run of Azure ML that hangs; a process of its own on each node, as nobody watches there.

A run hangs when no rank of any node has given a sign of life for `limits.hang`: no output, no line of
metrics, no progress, no byte of a checkpoint. Where there are several nodes, each tells the others through one blob of
the run that it lives, and that blob's age by the store's own clock decides: so all nodes end at the
same moment. A node that cannot ask the store ends nothing.

Before the end each rank writes torch's flight record (flight.py), if it keeps one, and the stacks of all its
threads into the log (PYTHONFAULTHANDLER).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from jobs.rank.flight import WRITING_S, ask_for_records
from jobs.rank.identity import Identity, NodeFailure
from jobs.rank.main import die_with_parent
from jobs.rank.places import PROGRESS
from jobs.rank.record import read_records
from jobs.rank.services import Answer, Container, unreachable
from jobs.rank.settings import Settings

LOOK_S = 5.0
# Between two signs of life to the other nodes, and at most so much of the limit.
TELL_S, TELL_SHARE = 60.0, 0.1
# All nodes stand still by then: the end of a rank wakes those that wait for it, which would die of that
# before they have shown where they waited.
STANDING_S = 4.0
STACKS_S = 2.0
_HUNG = "hung.json"


class Hung(NamedTuple):
    """The verdict on a node, for the records of its ranks.

    `silent_s` are the seconds since each rank's last output, `stopped` the ranks whose process somebody
    had stopped (SIGSTOP).
    """

    limit_s: float
    silent_s: dict[str, float]
    stopped: list[int]


def read_hung(run_dir: str) -> Hung | None:
    """Read the verdict on this node; None as long as it does not hang."""
    try:
        with open(f"{run_dir}/{_HUNG}", encoding="utf-8") as file:
            return Hung(**json.load(file))
    except FileNotFoundError:
        return None


def watch_hang(settings: Settings, run_dir: str, checkpoints: str, *, is_alone: bool) -> None:
    """Watch this node's ranks until the input is closed, or the run hangs; `is_alone` without others."""
    die_with_parent()
    limit_s = settings.hang_s or 0.0
    others = None if is_alone else RunActivity(settings)
    node = NodeActivity(run_dir, checkpoints)
    told_s, ask_s = float("-inf"), 0.0  # told the others last, ask them next
    while True:
        silent_s, now_s = node.silence(), time.monotonic()
        if others and node.has_news and now_s - told_s > min(TELL_S, limit_s * TELL_SHARE):
            told_s, node.has_news = now_s, not others.tell()
        if silent_s >= limit_s and now_s >= ask_s:
            elsewhere_s = others.silence() if others else silent_s
            known_s = min(silent_s, node.checkpoint_age(), elsewhere_s or 0.0)
            if known_s >= limit_s and end_hanging(run_dir, limit_s, is_alone=is_alone):
                return
            ask_s = now_s + pause_s(limit_s, known_s, elsewhere_s)
        wait_s = max(limit_s - silent_s, ask_s - now_s, 0.2)
        if select.select([0], [], [], min(wait_s, LOOK_S))[0]:
            return


def pause_s(limit_s: float, known_s: float, elsewhere_s: float | None) -> float:
    """Give the seconds until the other nodes are asked again, `elsewhere_s` being None where it did not say."""
    if elsewhere_s is None:
        return TELL_S
    # Past the limit no rank is at work: what the last ones wrote is on its way to the store.
    return max(limit_s - known_s, 0.2) if known_s < limit_s else LOOK_S


class NodeActivity:
    """The signs of life on this node."""

    def __init__(self, run_dir: str, checkpoints: str) -> None:
        self._run_dir, self._checkpoints = run_dir, checkpoints
        self._seen: list[int] = self._look()
        self._last_s = time.monotonic()
        self.has_news = True  # that the other nodes were not told of

    def silence(self) -> float:
        """Give the seconds since the last sign that was seen."""
        seen = self._look()
        if seen != self._seen:
            self._seen, self._last_s, self.has_news = seen, time.monotonic(), True
        return time.monotonic() - self._last_s

    def checkpoint_age(self) -> float:
        """Give the seconds since a byte of a checkpoint was written, on any node."""
        newest_s = max(
            (
                _modified_ns(f"{folder}/{name}") / 1e9
                for folder, _, names in os.walk(self._checkpoints)
                for name in names
            ),
            default=0.0,
        )
        return max(time.time() - newest_s, 0.0)

    def _look(self) -> list[int]:
        folder = f"{self._run_dir}/ranks"
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        told = (f"{self._run_dir}/{name}" for name in ("metrics.jsonl", PROGRESS))
        files = [*(f"{folder}/{name}" for name in names), *told]
        return [_modified_ns(each) for each in files]


class RunActivity:
    """The signs of life on all nodes, in one blob of the run."""

    def __init__(self, settings: Settings) -> None:
        identity, pauses_s = Identity(dict(os.environ)), (0.5,)
        self._runs = Container(settings.store, settings.runs, identity, pauses_s=pauses_s)
        self._blob = f"{settings.run}/alive/{settings.attempt}"
        self._began_s = time.monotonic()

    def tell(self) -> bool:
        """Tell the other nodes that this one lives; False where the store does not take it."""
        try:
            return self._runs.put(self._blob, b"", {}).status == 201
        except NodeFailure:
            return False

    def silence(self) -> float | None:
        """Give the seconds since a node told of a sign; None where the store does not say."""
        try:
            found = self._runs.look(self._blob)
            if found.status == 404:  # nobody could tell
                return time.monotonic() - self._began_s
            if found.status != 200:
                raise unreachable(self._blob, found)
            return _seconds(found, "Date") - _seconds(found, "Last-Modified")
        except (NodeFailure, TypeError, ValueError):
            return None


def end_hanging(run_dir: str, limit_s: float, *, is_alone: bool) -> bool:
    """Have the ranks of this node write what they wait for, and end; False where none is at work."""
    ranks = [each for each in read_records(run_dir) if "ended_s" not in each]
    ranks = [each for each in ranks if _is_group(each["child"])]
    if not ranks:
        return False
    verdict = Hung(
        limit_s,
        {str(each["rank"]): time.time() - each["output_s"] for each in ranks},
        [each["rank"] for each in ranks if _is_stopped(each["child"])],
    )
    with open(f"{run_dir}/{_HUNG}.new", "w", encoding="utf-8") as file:
        json.dump(verdict._asdict(), file)
    os.replace(file.name, f"{run_dir}/{_HUNG}")
    if ask_for_records(run_dir, [each["rank"] for each in ranks]):
        time.sleep(WRITING_S)
    groups = [each["child"] for each in ranks]
    _send(groups, signal.SIGSTOP)
    time.sleep(0.0 if is_alone else STANDING_S)
    _send(groups, signal.SIGABRT)
    _send(groups, signal.SIGCONT)
    deadline = time.monotonic() + STACKS_S
    while any(map(_is_group, groups)) and time.monotonic() < deadline:
        time.sleep(0.05)
    _send(groups, signal.SIGKILL)
    return True


def _send(groups: list[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def _is_group(child: Any) -> bool:
    """Tell whether a rank's command, which leads a group of its own, is there."""
    try:
        return isinstance(child, int) and child > 1 and os.getpgid(child) == child
    except ProcessLookupError:
        return False


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] in (b"T", b"t")
    except OSError:
        return False


def _modified_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _seconds(answer: Answer, name: str) -> float:
    return parsedate_to_datetime(answer.headers.get(name, "")).timestamp()
