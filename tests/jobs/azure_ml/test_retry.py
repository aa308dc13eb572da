"""When another attempt of a run on Azure ML is due."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobs.azure_ml.history import Attempt, attempt_of
from jobs.azure_ml.retry import NextAttempt, next_attempt
from jobs.spec import JobRetry, JobSpec, Limits
from tests.fakes.azure_runs import details
from tests.fakes.gangs import make_spec

SOON = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
PREEMPTED = "PreemptionError: Nodes of this job got pre-empted."
LOST = "Node x became unusable"


def job(*, most: int = 2, limit_s: float | None = None, **retry: tuple[str, ...]) -> JobSpec:
    limits = Limits(wall_clock_s=limit_s, hang_s=60)
    return make_spec(["python"], retry=JobRetry(max=most, **retry), limits=limits)


def attempts(*messages: str, status: str = "Failed") -> list[Attempt]:
    """Each 10 minutes long."""
    return [
        attempt_of(number, details(status, message, ended=610))
        for number, message in enumerate(messages, 1)
    ]


@pytest.mark.parametrize(
    ("spec", "before", "expected"),
    [
        (job(), attempts(PREEMPTED), NextAttempt(number=2, timeout_s=None)),
        (job(), attempts(PREEMPTED, LOST), NextAttempt(number=3, timeout_s=None)),
        (job(), attempts(PREEMPTED, LOST, LOST), None),
        (job(most=0), attempts(PREEMPTED), None),
        (job(on=("node_failure",)), attempts(PREEMPTED), None),
        (job(on=("node_failure",)), attempts(LOST), NextAttempt(number=2, timeout_s=None)),
        (job(), attempts("exited with status code 3"), None),
        (job(), attempts("exited with status code 75"), NextAttempt(number=2, timeout_s=None)),
        (job(), attempts("", status="Canceled"), None),
        (job(), attempts("", status="Running"), None),
        (job(limit_s=3600), attempts(PREEMPTED), NextAttempt(number=2, timeout_s=2940)),
        (job(limit_s=3600), attempts(LOST, LOST), NextAttempt(number=3, timeout_s=2340)),
        (job(limit_s=659), attempts(PREEMPTED), None),
    ],
)
def test_an_attempt_is_due_by_cause_number_and_time_left(
    spec: JobSpec, before: list[Attempt], expected: NextAttempt | None
) -> None:
    assert next_attempt(spec, before, SOON) == expected


def test_what_ended_long_ago_is_left_as_it_is() -> None:
    late = datetime(2026, 11, 23, tzinfo=UTC)
    assert next_attempt(job(), attempts(PREEMPTED), late) is None
