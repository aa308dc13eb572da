"""GPUs are counted, and a Horovod that cannot use them is refused before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jobs.contracts.errors import ExitCode, Refused
from jobs.engines.local.engine import LocalEngine
from jobs.engines.local.gpus import refuse_horovod_without_nccl
from jobs.host.gpus import count_gpus
from tests.fakes.gangs import make_environment, make_spec
from tests.fakes.runtimes import make_runtime


def test_gpus_are_counted_by_their_device_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert count_gpus(tmp_path) == 3
    assert count_gpus(tmp_path / "nowhere") == 0


@pytest.mark.parametrize("launcher", ["horovod", "mpi"])
def test_horovod_without_nccl_is_refused_where_there_are_gpus(
    tmp_path: Path, launcher: str
) -> None:
    python = make_runtime(tmp_path, b"..horovod_nccl_built..")
    with pytest.raises(Refused) as caught:
        refuse_horovod_without_nccl(launcher, "pytorch", {}, python, num_gpus=2)
    assert caught.value.message == (
        "this machine has 2 GPUs, and the Horovod of `pytorch` has no NCCL"
    )
    assert caught.value.hint == (
        "launcher: torch (DDP uses NCCL), or on the CPU: --set env.CUDA_VISIBLE_DEVICES=-1"
    )


@pytest.mark.parametrize(
    ("library", "num_gpus", "launcher", "env"),
    [
        (b"ncclAllReduce", 2, "horovod", {}),
        (b"", 0, "horovod", {}),
        (b"", 2, "torch", {}),
        (b"", 2, "horovod", {"CUDA_VISIBLE_DEVICES": "-1"}),
        (b"", 2, "horovod", {"CUDA_VISIBLE_DEVICES": ""}),
    ],
    ids=["with NCCL", "no GPU", "DDP", "hidden", "none visible"],
)
def test_horovod_is_accepted(
    tmp_path: Path, library: bytes, num_gpus: int, launcher: str, env: dict[str, str]
) -> None:
    python = make_runtime(tmp_path, library)
    refuse_horovod_without_nccl(launcher, "pytorch", env, python, num_gpus=num_gpus)


@pytest.mark.parametrize("hidden_by", ["job", "shell"])
def test_a_job_whose_gpus_are_hidden_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden_by: str
) -> None:
    python = make_runtime(tmp_path / "runtime", b"")
    submitted: list[Any] = []
    monkeypatch.setattr(
        "jobs.engines.local.engine.submit_run", lambda *given, **_: submitted.append(given)
    )
    env = {"CUDA_VISIBLE_DEVICES": "-1"}
    if hidden_by == "shell":
        monkeypatch.setenv(*env.popitem())
    environment = make_environment(tmp_path / "workspace")
    engine = LocalEngine(environment, runtime=lambda _: python, num_gpus=lambda: 1)
    engine.submit(engine.plan(make_spec(["python"], launcher="horovod", env=env)), {})
    assert len(submitted) == 1


def test_refused_job_leaves_no_run(tmp_path: Path) -> None:
    python = make_runtime(tmp_path / "runtime", b"")
    environment = make_environment(tmp_path / "workspace")
    engine = LocalEngine(environment, runtime=lambda _: python, num_gpus=lambda: 1)
    plan = engine.plan(make_spec(["python", "train.py"], launcher="horovod"))
    with pytest.raises(Refused) as caught:
        engine.submit(plan, {})
    assert caught.value.exit_code == ExitCode.REFUSED
    assert not os.path.lexists(tmp_path / "workspace")
