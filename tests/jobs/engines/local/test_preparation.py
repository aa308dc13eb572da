"""What a gang finds in its run's folder before it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from zipfile import is_zipfile

import msgspec
import pytest

from jobs.contracts.spec import DatasetVersion, InputSpec
from jobs.engines.local import preparation
from jobs.engines.local.launchers import gang_request
from jobs.engines.local.preparation import prepare
from jobs.runs.supervision import Handover
from tests.fakes.gangs import make_cluster, make_environment, make_spec

DIGITS = InputSpec(
    dataset=DatasetVersion(name="digits", version=1, digest="0" * 64, files=1, bytes=1),
    mode="download",
)


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


LOADED_LATE = """
import sys
from pathlib import Path
import msgspec
from jobs.contracts.spec import JobSpec
from jobs.engines.local import supervisor
from jobs.engines.local.preparation import keep_programs
before = set(sys.modules)
keep_programs(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=JobSpec))
print(*sorted(each for each in set(sys.modules) - before if each.startswith("jobs.engines.")))
"""


@pytest.mark.parametrize(
    ("launcher", "inputs", "expected"),
    [
        ("torch", {}, ""),
        ("horovod", {}, "jobs.engines.local.horovod_store"),
        ("torch", {"data": DIGITS}, "jobs.engines.local.inputs"),
    ],
)
def test_modules_that_a_job_needs_later_are_loaded_before_it_waits(
    tmp_path: Path, launcher: str, inputs: dict[str, InputSpec], expected: str
) -> None:
    spec = msgspec.json.encode(make_spec(["true"], launcher=launcher, inputs=inputs)).decode()
    argv = [sys.executable, "-c", LOADED_LATE, str(tmp_path), spec]
    assert subprocess.check_output(argv, text=True).strip() == expected
    assert is_zipfile(tmp_path / "rank.pyz")
