"""What a session makes of an azureml-core that fails: no answer is one thing, its own mistake another."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.engines.azure_ml.refusals import CloudRefusal, Passing
from jobs.engines.azure_ml_v1 import session
from jobs.engines.azure_ml_v1.run_configuration import v1_request
from tests.fakes.cloud_stack import IMAGE, make_cloud_environment
from tests.fakes.gangs import make_spec

FAILS = """
from jobs.engines.azure_ml_v1 import worker

def fail(*_, **__):
    raise ERROR

worker.Worker.do_submit = fail
worker.main()
"""


class ArmClient:
    """An open workspace, and a token."""

    workspace = ""
    tokens = SimpleNamespace(header=lambda _scope: "Bearer token")

    def get(self, _path: str, *, what: str) -> dict[str, Any]:
        return {"properties": {"what": what}}


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        ("TypeError('no argument of that name')", CloudRefusal),
        ("FileNotFoundError(2, 'No such file', 'train.py')", CloudRefusal),
        ("ConnectionResetError(104, 'reset by peer')", Passing),
    ],
)
def test_only_the_networks_silence_passes(
    raised: str, kind: type[CloudRefusal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(FAILS.replace("ERROR", raised))
    monkeypatch.setattr(session, "WORKER", worker)
    monkeypatch.setattr(session, "sdk_python", lambda: Path(sys.executable))
    client: Any = ArmClient()
    asked = session.Session(make_cloud_environment(), client)
    environment = make_cloud_environment()
    job = make_spec(["python"], image=IMAGE, launcher="none", processes_per_node=1)
    request = v1_request(job, environment, run="RUN", code="CODE")
    try:
        with pytest.raises(CloudRefusal) as caught:
            asked.submit(request, tmp_path)
    finally:
        asked.close()
    name = raised.partition("(")[0]
    assert caught.value.message.startswith(f"submitting RUN: azureml-core reports: {name}: ")
    assert type(caught.value) is kind
