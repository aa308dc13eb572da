"""What is said of a job that Azure ML does not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import ResumePoint
from jobs.engines.azure_ml.refusals import CloudRefusal, explain
from jobs.engines.azure_ml.results import cloud_checkpoints
from jobs.engines.azure_ml.sender import Sender
from jobs.engines.azure_ml.submission import Submission, _hand_on_checkpoints
from tests.fakes.blob_store import MemoryStore
from tests.fakes.cloud_stack import make_cloud_environment


class Refused:
    """Sends a job that Azure ML does not understand."""

    def put(self, *_: Any) -> None:
        """See Sender."""
        body = b'{"error": {"code": "UserError", "message": "no such thing"}}'
        environment = make_cloud_environment()
        raise explain(400, body, environment=environment, what="submitting", host="h")

    def is_there(self, _: Any) -> bool:
        """See Sender."""
        return False

    def provide_missing(self, *_: Any) -> bool:
        """See Sender."""
        return False


def test_who_sent_what_azure_ml_does_not_take_is_told_where_it_is_shown(tmp_path: Path) -> None:
    run_dir = tmp_path / "20261121-120000-0001"
    run_dir.mkdir()
    nothing: Any = None
    sent = Submission(run_dir, nothing, cast("Sender", Refused()), may_be_on=False)
    with pytest.raises(CloudRefusal) as raised:
        sent.send(nothing)
    assert raised.value.message == "submitting: Azure answered 400 UserError: no such thing"
    assert raised.value.hint == "`launch plan JOB --json` shows the request"
    assert not run_dir.exists()


def test_whole_checkpoints_of_another_run_are_handed_on_and_each_is_whole_last() -> None:
    store = MemoryStore()
    first, second = "step-000000002-aaaaaaaa", "step-000000004-aaaaaaaa"
    given = {
        f"{first}/manifest.json": b"{}",
        f"{first}/state": b"one",
        f"{second}/state": b"half of it",
    }
    store.blobs |= {f"checkpoints/old/{name}": each for name, each in given.items()}
    # Of a run whose id begins alike.
    store.blobs["checkpoints/older/step-000000002-aaaaaaaa/manifest.json"] = b"{}"
    sent: Any = store
    _hand_on_checkpoints(sent, ResumePoint(run="old", step=2), "new")
    assert store.copied == [
        f"checkpoints/new/{first}/state",
        f"checkpoints/new/{first}/manifest.json",
    ]
    store.copied.clear()
    store.most_copies = 1
    with pytest.raises(EnvironmentFailure, match="the checkpoints of old could not be copied to x"):
        _hand_on_checkpoints(sent, ResumePoint(run="old", step=2), "x")


def test_folders_of_a_checkpoint_are_handed_on_before_it_is_whole_and_no_name_leads_out() -> None:
    store = MemoryStore()
    given = ["manifest.json", "global_step/manifest.json", "global_step/rank_00.pt"]
    odd = ["../../other/x", "global_step//x", "global_step/./x"]
    for name in [*given, *odd]:
        store.blobs[f"checkpoints/old/checkpoint-500/{name}"] = b'{"step": 500}'
    store.blobs["checkpoints/old/half/global_step/manifest.json"] = b'{"step": 500}'
    store.blobs["checkpoints/old/../manifest.json"] = b'{"step": 500}'
    sent: Any = store
    assert [each.name for each in cloud_checkpoints(sent, "old")] == ["checkpoint-500"]
    _hand_on_checkpoints(sent, ResumePoint(run="old", step=500), "new")
    assert store.copied == [
        f"checkpoints/new/checkpoint-500/{name}" for name in [*sorted(given[1:]), given[0]]
    ]
