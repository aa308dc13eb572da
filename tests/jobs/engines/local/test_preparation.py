"""What a gang finds in its run's folder before it starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.engines.local import preparation
from jobs.engines.local.launchers import gang_request
from jobs.engines.local.preparation import prepare
from jobs.runs.supervision import Handover
from tests.fakes.gangs import make_cluster, make_environment, make_spec


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, ["0,1,2,3", "4,5,6,7"]), ("2,3", ["2", "3"]), ("2", None), ("-1", None)],
)
def test_nodes_share_the_gpus_that_the_shell_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, expected: list[str] | None
) -> None:
    monkeypatch.setattr(preparation, "count_gpus", lambda: 8)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    run_dir = tmp_path / "workspace" / "runs" / "20261126-000000-0001"
    run_dir.mkdir(parents=True)
    spec = make_spec(["true"], nodes=2)
    environment = make_environment(tmp_path / "workspace", nodes=2)
    prepare(
        run_dir,
        spec,
        gang_request(spec, make_cluster(nodes=2)),
        handover=Handover(interpreter="/python", environment=environment, secrets={}),
        nodes=(0, 1),
        wait=lambda *_: pytest.fail("there is nothing to wait for"),
    )
    assert json.loads((run_dir / "rank.json").read_bytes())["gpus"] == expected
