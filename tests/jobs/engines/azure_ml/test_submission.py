"""What is said of a job that Azure ML does not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.engines.azure_ml.refusals import CloudRefusal, explain
from jobs.engines.azure_ml.submission import Submission
from tests.fakes.cloud_stack import make_cloud_environment


class Refused(Submission):
    """Whose job is one that Azure ML does not understand."""

    def _put(self, record: Any) -> None:
        body = b'{"error": {"code": "UserError", "message": "no such thing"}}'
        raise explain(400, body, environment=self.environment, what="submitting", host="h")

    def _is_there(self, record: Any) -> bool:
        return False

    def _mended(self, record: Any) -> bool:
        return False


def test_who_sent_what_azure_ml_does_not_take_is_told_where_it_is_shown(tmp_path: Path) -> None:
    run_dir = tmp_path / "20261121-120000-0001"
    run_dir.mkdir()
    nothing: Any = None
    way = Refused(make_cloud_environment(), run_dir, nothing, nothing)
    with pytest.raises(CloudRefusal) as raised:
        way.send(nothing)
    assert raised.value.message == "submitting: Azure answered 400 UserError: no such thing"
    assert raised.value.hint == "`launch plan JOB --json` has what was sent"
    assert not run_dir.exists()
