"""What is said of a job that Azure ML does not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from jobs.engines.azure_ml.refusals import CloudRefusal, explain
from jobs.engines.azure_ml.sender import Sender
from jobs.engines.azure_ml.submission import Submission
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
