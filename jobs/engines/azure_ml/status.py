"""Asks Azure ML how runs stand: no more often than it helps, and on while it cannot be reached.

What has ended is kept in the run's folder, and not asked for again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from jobs.contracts.errors import LaunchError, Unreached
from jobs.contracts.spec import JobSpec, Limits, RunHandle, RunState
from jobs.engines.azure_ml.history import Attempt, Listed, attempt_of, created_of
from jobs.engines.azure_ml.intents import GIVEN_UP, RESUME_S, read_intent
from jobs.engines.azure_ml.refusals import CloudRefusal, WorkspaceGone
from jobs.engines.azure_ml.results import is_cancelled, own_error, rank_error
from jobs.engines.azure_ml.states import Standing
from jobs.host import console
from jobs.host.console import duration_text
from jobs.host.files import write_file
from jobs.host.private import make_folder
from jobs.host.untrusted import read_json
from jobs.runs.failure import summary_line
from jobs.runs.outcome import parse_time

if TYPE_CHECKING:
    from jobs.blobs.store import BlobStore

# What was asked so recently is not asked again: at first often, later less so.
FRESH_S, STALE_S = 1.0, 5.0
# While a run waits to begin, its beginning must be seen soon.
WAITING_STALE_S = 2.0
# A run that was made so recently need not say what it waits for.
JUST_NOW = timedelta(seconds=5)
# How often a waiting run's cluster is looked at.
CLUSTER_LOOK_S = 15.0
# So long an Azure that cannot be reached is waited for by whoever follows a run.
PATIENCE_S = 900.0
KEPT = "azure"
# What a job's `retry` may name: its run may have been cancelled when Azure ML knew no job to end.
RETRIED = ("preemption", "node_failure")
_WAITING = (RunState.QUEUED, RunState.PREPARING)


class Look(Struct, kw_only=True):
    """Attempts seen of a run, and when (monotonic)."""

    attempts: list[Attempt]
    seen_s: float
    changed_s: float
    waiting: str | None = None  # for what
    cluster_seen_s: float | None = None
    silent_since_s: float | None = None

    def is_fresh(self, now_s: float) -> bool:
        """Tell whether it need not be asked again yet."""
        last = self.attempts[-1]
        longest_s = WAITING_STALE_S if last.standing.state in _WAITING else STALE_S
        fresh_s = min(max((now_s - self.changed_s) / 20, FRESH_S), longest_s)
        return _is_whole(last) or now_s - self.seen_s < fresh_s


class StatusReader:
    """Statuses of the runs of one workspace, and when each was asked for.

    `details` asks for an attempt of a run, `why_waiting` why an attempt has not begun; both raise
    CloudRefusal. `spec_of` gives a run's job, `blobs` the container `runs`.
    """

    def __init__(
        self,
        workspace: str,
        *,
        details: Callable[[str, int], Mapping[str, Any] | None],
        why_waiting: Callable[[RunHandle, Attempt], str | None],
        spec_of: Callable[[str], JobSpec],
        blobs: Callable[[], BlobStore],
    ) -> None:
        self._workspace = workspace
        self._details = details
        self._why_waiting = why_waiting
        self._spec_of = spec_of
        self._blobs = blobs
        self._looks: dict[str, Look] = {}
        self._told: set[str] = set()

    def look(self, handle: RunHandle) -> Look:
        """Read the attempts of a run; raises Unreached if Azure has been silent for long."""
        now_s = time.monotonic()
        look = self._looks.get(handle.id)
        if look is not None and look.is_fresh(now_s):
            return look
        try:
            attempts = self._ask(handle)
        except Unreached as silence:
            if look is None:
                raise
            return _wait_on(look, silence)
        if look is None or look.attempts != attempts:
            before_s = look.cluster_seen_s if look is not None else None
            look = Look(attempts=attempts, seen_s=now_s, changed_s=now_s, cluster_seen_s=before_s)
            self._looks[handle.id] = look
        look.seen_s, look.silent_since_s = now_s, None
        self._look_at_cluster(handle, look, now_s)
        return look

    def expect(self, handle: RunHandle, before: Sequence[Attempt] = ()) -> None:
        """Let the run wait: it was just submitted, and a silent Azure is waited for.

        Behind attempts `before` it may still be on its way, and is not looked for at once.
        """
        waits = Standing(state=RunState.QUEUED)
        attempt = Attempt(number=len(before) + 1, status="NotStarted", standing=waits)
        now_s = time.monotonic()
        self._looks[handle.id] = Look(
            attempts=[*before, attempt], seen_s=now_s if before else -math.inf, changed_s=now_s
        )

    def forget(self, handle: RunHandle) -> None:
        """Ask anew next time: something was done to the run."""
        self._looks.pop(handle.id, None)

    def attempt_of_listed(self, listed: Listed, run_dir: Path) -> Attempt | None:
        """Read what a list does not tell of a run that has begun.

        None, and a warning, where it cannot be told of this one run.
        """
        try:
            return self._attempt_of_listed(listed, run_dir)
        except Unreached:
            raise
        except LaunchError as error:
            if error.message not in self._told:  # of many runs it is the same
                self._told.add(error.message)
                console.warn(f"{listed.run}: {error.message}")
            return None

    def _attempt_of_listed(self, listed: Listed, run_dir: Path) -> Attempt | None:
        attempt = kept_attempt(run_dir, listed.attempt)
        if attempt is None:
            if listed.standing.state is RunState.QUEUED:
                return None
            details = self._details(listed.run, listed.attempt)
            if details is None:
                return None
            attempt = self._judged(run_dir, attempt_of(listed.attempt, details))
        if attempt.standing.cause not in RETRIED:
            return attempt
        return self._as_cancelled(listed.run, attempt)

    def _ask(self, handle: RunHandle) -> list[Attempt]:
        """Read all attempts; looks for another only if there may be one."""
        retry = self._spec_of(handle.id).retry
        attempts: list[Attempt] = []
        for number in range(1, retry.max + 2):
            attempt = self._attempt(handle, number)
            if attempt is None:
                break
            attempts.append(attempt)
            if attempt.standing.cause not in retry.on:
                return attempts
        if len(attempts) <= retry.max:
            attempts[-1] = self._as_cancelled(handle.id, attempts[-1])
        return attempts

    def _as_cancelled(self, run: str, attempt: Attempt) -> Attempt:
        """Turn an attempt that Azure ended into the user's own end, if no other is to follow it."""
        if not is_cancelled(self._blobs(), run):
            return attempt
        standing = replace(attempt.standing, state=RunState.CANCELLED, cause=None, exit_code=None)
        return replace(attempt, standing=standing)

    def _attempt(self, handle: RunHandle, number: int) -> Attempt | None:
        run_dir = Path(handle.run_dir)
        kept = kept_attempt(run_dir, number)
        if kept is not None:
            return kept
        try:
            details = self._details(handle.id, number)
        except WorkspaceGone:
            return _lost(
                number,
                f"the workspace `{self._workspace}` was deleted with its records of the run",
            )
        if details is None:
            return None if number > 1 else _without_job(run_dir)
        return self._judged(run_dir, attempt_of(number, details))

    def _judged(self, run_dir: Path, attempt: Attempt) -> Attempt:
        """Judge an attempt by its ranks' records first: Azure ML's message may quote any program.

        Where it speaks of a node or a quota, a rank that only lost its peers says nothing else.
        """
        standing = attempt.standing
        if standing.state in (RunState.FAILED, RunState.PREEMPTED):
            ask = rank_error if standing.cause in ("program", "unknown") else own_error
            error = ask(self._blobs(), run_dir.name, attempt.number)
            if error is not None:
                standing = replace(
                    standing,
                    state=RunState.FAILED,
                    reason=summary_line(error),
                    exit_code=error.exit_code,
                    cause="program",
                )
                attempt = replace(attempt, standing=standing)
        if standing.cause == "time_limit":
            limits = self._spec_of(run_dir.name).limits
            attempt = replace(attempt, standing=_by_limit(standing, limits))
        _keep(run_dir, attempt)
        return attempt

    def _look_at_cluster(self, handle: RunHandle, look: Look, now_s: float) -> None:
        """Find out why a run waits, now and then."""
        attempt = look.attempts[-1]
        if attempt.standing.state not in _WAITING or not attempt.status:
            look.waiting = None
            return
        if look.cluster_seen_s is not None and now_s - look.cluster_seen_s < CLUSTER_LOOK_S:
            return
        if parse_time(created_of(handle.id)) > datetime.now(UTC) - JUST_NOW:
            return  # the nodes that are busy may be those that it has just got
        look.cluster_seen_s = now_s
        try:
            look.waiting = self._why_waiting(handle, attempt)
        except CloudRefusal:
            return  # it is no more than a remark


def kept_attempt(run_dir: Path, number: int) -> Attempt | None:
    """Read an attempt that was seen to be over."""
    try:
        return read_json(run_dir / KEPT / f"{number}.json", Attempt)
    except (OSError, msgspec.DecodeError):
        return None


def _is_whole(attempt: Attempt) -> bool:
    """Tell whether an attempt is over, and told in full: at first only its state may be known."""
    return attempt.standing.state.is_terminal() and attempt.ended is not None


def _keep(run_dir: Path, attempt: Attempt) -> None:
    if not _is_whole(attempt):
        return
    try:
        make_folder(run_dir / KEPT)
        write_file(run_dir / KEPT / f"{attempt.number}.json", msgspec.json.encode(attempt))
    except OSError:
        return  # it is asked for again


def _by_limit(standing: Standing, limits: Limits) -> Standing:
    """Name the limit that ended a run, as it was given."""
    if limits.cost is None or limits.wall_clock_s is None:
        return standing
    made = f"{limits.cost:g} became a time limit of {duration_text(limits.wall_clock_s)}"
    return replace(standing, reason=f"limits.cost: {made}: {standing.evidence}")


def _without_job(run_dir: Path) -> Attempt:
    """Make the attempt of a run whose job Azure ML has not got."""
    intent = read_intent(run_dir)
    if intent is not None and time.time() - intent.since_s < RESUME_S:
        reason = (
            "its submission is under way, or was interrupted: the same `launch run` goes on with it"
        )
        standing = Standing(state=RunState.QUEUED, reason=reason)
        return Attempt(number=1, status="", standing=standing)
    if intent is not None or (run_dir / GIVEN_UP).exists():
        return _lost(1, "Azure ML never received it: its submission was interrupted or refused")
    return _lost(1, "Azure ML no longer has this job")


def _lost(number: int, reason: str) -> Attempt:
    standing = Standing(state=RunState.LOST, reason=reason)
    return Attempt(number=number, status="", standing=standing)


def _wait_on(look: Look, silence: Unreached) -> Look:
    """Use the last known state while Azure is silent, for a limited time."""
    now_s = time.monotonic()
    if look.silent_since_s is None:
        look.silent_since_s = now_s
        console.warn(
            f"{silence.message}; trying again for {PATIENCE_S / 60:.0f} min; the run goes on"
        )
    if now_s - look.silent_since_s > PATIENCE_S:
        raise silence
    look.seen_s = now_s
    return look
