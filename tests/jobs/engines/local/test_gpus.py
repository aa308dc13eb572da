"""GPUs are counted, and left alone by a job whose Horovod cannot use them; its plan and run say so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure, ExitCode, Refused
from jobs.contracts.spec import JobFile, JobSpec, Plan
from jobs.engines.local import engine as local_engine
from jobs.engines.local.engine import LocalEngine
from jobs.engines.local.launchers import read_request
from jobs.host.gpus import count_gpus, visible_gpus
from jobs.jobfile.find import catalog_names
from jobs.jobfile.read import load_job
from jobs.launching.plan import plan_on
from tests.contract.test_catalog import resolved
from tests.fakes.gangs import make_environment, make_spec
from tests.fakes.runtimes import make_runtime

WITHOUT, WITH = b"..horovod_nccl_built..", b"..ncclAllReduce.."
HINT = "launcher: torch (DDP uses NCCL), or leave out {} to train on the CPU"
NOTE = (
    "trains on the CPU: the Horovod of `test` has no NCCL, so the 2 GPUs here rest; "
    "launcher: torch uses them by DDP"
)


def make_engine(
    tmp_path: Path, library: bytes, *, num_gpus: int = 2, framework: str = "torch"
) -> LocalEngine:
    """An engine on a machine with so many device files of GPUs."""
    devices = tmp_path / "dev"
    devices.mkdir()
    for number in range(num_gpus):
        (devices / f"nvidia{number}").touch()
    python = make_runtime(tmp_path / "runtime", library, framework=framework)
    environment = make_environment(tmp_path / "workspace")
    return LocalEngine(environment, runtime=lambda _: python, num_gpus=lambda: count_gpus(devices))


def told_of_devices(plan: Plan) -> tuple[str | None, tuple[str, ...]]:
    """What the ranks' environment says of GPUs, and what the plan notes of them."""
    notes = tuple(note for note in plan.notes if "GPU" in note)
    return read_request(plan).env.get("CUDA_VISIBLE_DEVICES"), notes


def job(launcher: str = "horovod", *words: str, **env: str) -> JobSpec:
    return make_spec(["python", "train.py", *words], launcher=launcher, env=env)


def test_gpus_are_counted_by_their_device_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert count_gpus(tmp_path) == 3
    assert count_gpus(tmp_path / "nowhere") == 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "0 1 2 3"),
        ("2,3", "2 3"),
        ("3, 0", "3 0"),
        ("GPU-8932f937,MIG-b5cd7", "GPU-8932f937 MIG-b5cd7"),
        # As CUDA reads it: nothing is visible from the first that is no GPU on.
        ("1,-1,2", "1"),
        ("1,4,2", "1"),
        ("", ""),
        ("-1", ""),
        ("NoDevFiles", ""),
    ],
)
def test_gpus_are_those_that_the_shell_shows(given: str | None, expected: str) -> None:
    environ = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    assert visible_gpus(environ, 4) == tuple(expected.split())
    assert visible_gpus(environ, 0) == ()


@pytest.mark.parametrize(
    ("given", "nodes", "expected"),
    [(None, 1, 8), ("2,3", 1, 2), ("2,3,5", 2, 1), ("-1", 1, 3), (None, 2, 4)],
)
def test_a_plan_has_a_process_for_each_gpu_that_the_shell_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, nodes: int, expected: int
) -> None:
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    environment = make_environment(tmp_path / "workspace", nodes=nodes, processes=3)
    cluster = msgspec.structs.replace(environment.clusters["cpu"], gpus_per_node=8 // nodes)
    environment = msgspec.structs.replace(environment, clusters={"cpu": cluster})
    python = make_runtime(tmp_path / "runtime", WITH)
    engine = LocalEngine(environment, runtime=lambda _: python, num_gpus=lambda: 8)
    job_file = JobFile(name="a", image="test", launcher="torch", command=("true",))
    assert plan_on(job_file, None, engine).spec.processes_per_node == expected


@pytest.mark.parametrize("launcher", ["horovod", "mpi"])
def test_a_job_whose_horovod_lacks_nccl_trains_on_the_cpu_and_says_so(
    tmp_path: Path, launcher: str
) -> None:
    plan = make_engine(tmp_path, WITHOUT).plan(job(launcher))
    assert told_of_devices(plan) == ("-1", (NOTE,))
    assert plan.spec.env == {}  # a later run, with another Horovod, uses the GPUs


@pytest.mark.parametrize(
    ("library", "num_gpus", "launcher", "env"),
    [
        (WITH, 2, "horovod", {}),
        (WITHOUT, 0, "horovod", {}),
        (WITHOUT, 2, "torch", {}),
        (WITHOUT, 2, "horovod", {"CUDA_VISIBLE_DEVICES": "-1"}),
        (WITHOUT, 2, "horovod", {"CUDA_VISIBLE_DEVICES": ""}),
    ],
    ids=["with NCCL", "no GPU", "DDP", "hidden", "none visible"],
)
def test_other_jobs_are_planned_as_they_are(
    tmp_path: Path, library: bytes, num_gpus: int, launcher: str, env: dict[str, str]
) -> None:
    engine = make_engine(tmp_path, library, num_gpus=num_gpus)
    expected = (env.get("CUDA_VISIBLE_DEVICES"), ())
    assert told_of_devices(engine.plan(job(launcher, **env))) == expected


def test_gpus_that_the_shell_hides_are_not_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert told_of_devices(make_engine(tmp_path, WITHOUT).plan(job())) == (None, ())


@pytest.mark.parametrize(
    ("words", "env", "asked"),
    [
        (("--device", "cuda"), {}, "`--device cuda`"),
        (("--device=cuda",), {}, "`--device cuda`"),
        ((), {"CUDA_VISIBLE_DEVICES": "0,1"}, "`env: CUDA_VISIBLE_DEVICES`"),
    ],
)
def test_a_job_that_asks_for_gpus_is_refused_and_leaves_no_run(
    tmp_path: Path, words: tuple[str, ...], env: dict[str, str], asked: str
) -> None:
    engine = make_engine(tmp_path, WITHOUT)
    with pytest.raises(Refused) as caught:
        engine.plan(job("horovod", *words, **env))
    assert caught.value.message == (
        "this machine has 2 GPUs, and the Horovod of `test` has no NCCL"
    )
    assert caught.value.hint == HINT.format(asked)
    assert caught.value.exit_code == ExitCode.REFUSED
    assert not os.path.lexists(tmp_path / "workspace")


def test_a_job_of_tensorflow_is_not_told_to_use_ddp(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, WITHOUT, framework="tensorflow")
    assert told_of_devices(engine.plan(job())) == ("-1", (NOTE.partition(";")[0],))
    with pytest.raises(Refused) as caught:
        engine.plan(job("horovod", "--device", "cuda"))
    assert caught.value.hint == "leave out `--device cuda` to train on the CPU"


def test_a_job_of_the_catalog_that_asks_for_gpus_is_told_its_twin(tmp_path: Path) -> None:
    spec, _ = resolved("digits", nodes=1, processes=2)
    asking = {"CUDA_VISIBLE_DEVICES": "0"}
    with pytest.raises(Refused) as caught:
        make_engine(tmp_path, WITHOUT).plan(msgspec.structs.replace(spec, env=asking))
    assert caught.value.hint == (
        "launch run digits-ddp (DDP uses NCCL), "
        "or leave out `env: CUDA_VISIBLE_DEVICES` to train on the CPU"
    )


@pytest.mark.parametrize("name", catalog_names())
def test_every_job_of_the_catalog_is_planned_on_a_machine_with_gpus(
    tmp_path: Path, name: str
) -> None:
    spec, _ = resolved(name, nodes=1, processes=2)
    visible, notes = told_of_devices(make_engine(tmp_path, WITHOUT).plan(spec))
    is_horovod = load_job(name).job.launcher == "horovod"
    assert (visible, len(notes)) == (("-1", 1) if is_horovod else (None, 0))


def submitted_plans(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> list[Plan]:
    """Submit the plan; gives what was put on disk."""
    found: list[Any] = []
    monkeypatch.setattr(local_engine, "submit_run", lambda _, plan, *__, **___: found.append(plan))
    engine.submit(plan, {})
    return found


def test_the_run_is_recorded_with_the_note_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(tmp_path, WITHOUT)
    plan = engine.plan(job())
    assert submitted_plans(engine, monkeypatch, plan) == [plan]


def test_a_plan_that_was_made_before_the_runtime_hides_the_gpus_when_it_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = make_engine(tmp_path, WITHOUT)

    def missing(_: str) -> Path:
        message = "image `pytorch` is not installed on this machine"
        raise EnvironmentFailure(message, hint="launch image install pytorch")

    engine = LocalEngine(ready.environment, runtime=missing, num_gpus=lambda: 2)
    plan = engine.plan(job())
    assert told_of_devices(plan) == (None, ())
    (submitted,) = submitted_plans(ready, monkeypatch, plan)
    assert told_of_devices(submitted) == ("-1", (NOTE,))
