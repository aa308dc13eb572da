"""What is left of a run that azureml-core did not start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.engines.azure_ml import submission
from jobs.engines.azure_ml.intents import Intent, read_intent, write_intent
from jobs.engines.azure_ml.refusals import CloudRefusal, Passing
from jobs.engines.azure_ml_v1.engine import AzureMlV1Engine
from jobs.engines.azure_ml_v1.submission import V1Sender
from tests.fakes.azure_runs import RUN, MemoryRuns
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_spec


class Fails(V1Sender):
    """Fails so in azureml-core; Azure ML has no such run."""

    def __init__(self, failure: CloudRefusal) -> None:
        self._failure = failure

    def put(self, *_: Any) -> None:
        raise self._failure

    def is_there(self, record: Any) -> bool:
        return False


@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        (CloudRefusal, None, "the folder is too large"),
        (Passing, 429, "the folder is too large"),
        *(
            (Passing, status, "it is unknown whether Azure ML has RUN: the folder is too large")
            for status in (None, 408, 409, 503)
        ),
    ],
)
def test_a_run_that_was_not_started_goes_and_one_that_may_be_on_stays(
    kind: type[CloudRefusal],
    status: int | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submission.time, "sleep", lambda _: None)
    run_dir = tmp_path / "RUN"
    run_dir.mkdir()
    nothing: Any = None
    failure = kind(
        "the folder is too large", hint="x", status=status, code="SnapshotException", text=""
    )
    sent = submission.Submission(run_dir, nothing, Fails(failure), may_be_on=False)
    with pytest.raises(CloudRefusal) as raised:
        sent.send(nothing)
    assert raised.value.message == said
    assert run_dir.exists() == said.startswith("it is unknown")


def test_the_same_again_after_a_cancel_is_another_run(tmp_path: Path) -> None:
    """Also of a run that Azure ML never got."""
    engine = AzureMlV1Engine(make_cloud_environment())
    engine.__dict__["store"] = runs = MemoryRuns(tmp_path)
    runs.__dict__["session"] = SimpleNamespace(cancel=lambda _run: None)
    run_dir = Path(runs.add(make_spec(["python"])).run_dir)
    write_intent(run_dir, Intent(plan_digest="p", code="c", since_s=0.0))
    engine.cancel(runs.handle(RUN))
    assert read_intent(run_dir) is None
