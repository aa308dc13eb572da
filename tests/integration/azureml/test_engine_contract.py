"""What every engine keeps: the same tests on this machine and on both of Azure ML's APIs."""

from __future__ import annotations

import os
import re
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from jobs.contracts.spec import (
    Environment,
    JobSpec,
    Limits,
    LogLine,
    RunHandle,
    RunState,
    RunStatus,
)
from jobs.engines import load_engine, load_store
from jobs.engines.base import Engine
from tests.busy import Bound, limit_s
from tests.fakes.azureml import FakeAzure
from tests.fakes.gangs import Gangs, make_spec
from tests.fakes.wheels import make_wheel, requirement

REFERENCE = f"registry.azurecr.io/python@sha256:{'a' * 64}"
PROGRAM = """\
import os
from pathlib import Path
rank = os.environ["RANK"]
for step in range(3):
    print("rank", rank, "step", step, flush=True)
Path(os.environ["TRAINYARD_OUTPUT_MODEL"], f"model-{rank}").write_text(rank)
"""
FAILING = "import os\nif os.environ['RANK'] == '1':\n    raise SystemExit(3)\n"
# Of its own folder, so that neither the checkout nor the image can bring it.
PACKAGES = """\
import importlib, os, sys
for name in sys.argv[1:]:
    print(name, importlib.import_module(name).SAYS, flush=True)
print(os.environ["PATH"].startswith(sys.prefix + "/bin:"), flush=True)
"""
SLEEPING = "import time\nprint('asleep', flush=True)\ntime.sleep(600)\n"
# Rank 1 stands still elsewhere than in what the other one waits in.
HANGING = """\
import os, time
def all_reduce():
    time.sleep(600)
def read_a_file():
    time.sleep(600)
print("met", flush=True)
all_reduce() if os.environ["RANK"] == "0" else read_a_file()
"""
WAIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Bench:
    """An engine, what its jobs have in common, and whether a new `launch` finds its runs."""

    engine: Engine
    common: dict[str, Any]
    environment: Environment

    def spec(self, folder: Path, program: str, **changes: Any) -> JobSpec:
        """A job of two ranks that runs this Python text."""
        (folder / "train.py").write_text(program)
        fields = {"code": str(folder), "outputs": ("model",), **self.common, **changes}
        return make_spec(["python", "train.py"], **fields)

    def wait(self, handle: RunHandle) -> RunStatus:
        """Wait until the run is over."""
        bound = Bound(WAIT_S)
        while not (status := self.engine.store.status(handle)).state.is_terminal():
            bound.check(status)
            time.sleep(0.05)
        return status


def local_bench(folder: Path) -> Iterator[Bench]:
    gangs = Gangs(folder)
    environment = gangs.engine.environment
    yield Bench(engine=gangs.engine, common={}, environment=environment)
    gangs.end()


def azure_bench(azure: FakeAzure, name: str) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        for variable, value in {**azure.environ, "XDG_CACHE_HOME": cache}.items():
            patch.setenv(variable, value)
        environment = msgspec.convert({**azure.environment(), "engine": name}, Environment)
        common = {"stack": "dev", "image": REFERENCE, "compute": "cpu-1a2b3c"}
        engine = load_engine(environment)
        yield Bench(engine=engine, common=common, environment=environment)
        if name == "azureml_v1":
            engine.store.session.close()  # type: ignore[attr-defined]


@pytest.fixture(scope="module", params=["local", "azureml", "azureml_v1"])
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    if request.param == "local":
        yield from local_bench(tmp_path_factory.mktemp("local"))
        return
    if request.param == "azureml_v1":
        find: Callable[[str], Path] = request.getfixturevalue("sdk_python")
        find("azureml_core")
    yield from azure_bench(request.getfixturevalue("standing_azure"), request.param)


def installed() -> list[str]:
    """Distributions of the interpreter that stands for the image, which is ours, too."""
    folder = Path(sysconfig.get_path("purelib"))
    return sorted(path.name for path in folder.glob("*.dist-info"))


def texts(lines: list[LogLine], rank: int) -> list[str]:
    return [line.text for line in lines if line.rank == rank]


class TestEngine:
    """What `jobs.engines.base.Engine` promises."""

    def test_packages_that_a_job_brings_are_there_for_its_ranks_and_nowhere_else(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        engine, before = bench.engine, installed()
        code = tmp_path / "code"
        code.mkdir()
        locked = make_wheel(code / "wheels", "lockedpackage", "1.0", "SAYS = 'from the file'")
        make_wheel(code / "more", "setuppackage", "1.0", "SAYS = 'from setup'")
        (code / "needed.txt").write_text(
            f"--no-index\n--find-links wheels\n{requirement(locked)}", encoding="utf-8"
        )
        spec = bench.spec(
            code,
            PACKAGES,
            requirements="needed.txt",
            setup=("pip install --no-index --find-links more setuppackage",),
        )
        words = (*spec.command, "lockedpackage", "setuppackage")
        handle = engine.submit(engine.plan(structs.replace(spec, command=words)), {})
        assert bench.wait(handle).state is RunState.COMPLETED, engine.store.error(handle)
        lines = list(engine.logs(handle, None, follow=False))
        said = ["lockedpackage from the file", "setuppackage from setup", "True"]
        assert {rank: texts(lines, rank)[-3:] for rank in (0, 1)} == {0: said, 1: said}
        assert installed() == before

    def test_a_run_is_planned_submitted_followed_and_fetched(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        engine, spec = bench.engine, bench.spec(tmp_path, PROGRAM)
        plan = engine.plan(spec)
        assert (plan, plan.spec) == (engine.plan(spec), spec)
        handle = engine.submit(plan, {})
        assert handle.engine == bench.environment.engine
        lines = list(engine.logs(handle, None, follow=True))
        said = {rank: [f"rank {rank} step {step}" for step in range(3)] for rank in (0, 1)}
        assert {rank: texts(lines, rank) for rank in (0, 1)} == said
        status = bench.wait(handle)
        found = (status.id, status.state, status.exit_code, status.world_size, status.run_dir)
        assert found == (handle.id, RunState.COMPLETED, 0, 2, handle.run_dir)
        assert status.created < (status.started or "") < (status.ended or "")
        # Later, and only what was asked for.
        chosen = engine.logs(handle, [1], follow=False, tail=1, grep=re.compile("step [01]"))
        assert [(line.rank, line.text) for line in chosen] == [(1, "rank 1 step 1")]
        # Whoever types the next command.
        store = load_store(bench.environment)
        assert store.list(1) == [status]
        assert store.find(handle.id[:-1]) == store.find("last") == handle
        assert store.record(handle).plan.spec == spec
        into = tmp_path / "fetched"
        assert engine.fetch(handle, into) == into
        outputs = {path.name: path.read_text() for path in (into / "outputs" / "model").iterdir()}
        assert outputs == {"model-0": "0", "model-1": "1"}
        log = (into / "logs" / "rank-00001.log").read_text()
        assert [line.split(" ", 1)[1] for line in log.splitlines()] == said[1]
        before = {path: path.stat().st_mtime_ns for path in into.rglob("*")}
        engine.fetch(handle, into)
        assert {path: path.stat().st_mtime_ns for path in into.rglob("*")} == before

    def test_a_failure_names_the_rank_and_its_exit_code(self, bench: Bench, tmp_path: Path) -> None:
        engine = bench.engine
        handle = engine.submit(engine.plan(bench.spec(tmp_path, FAILING)), {})
        status = bench.wait(handle)
        assert (status.state, status.exit_code) == (RunState.FAILED, 3)
        assert status.reason
        assert status.reason.startswith("rank 1 on ")
        error = engine.store.error(handle)
        assert error
        assert (error.rank, error.exit_code) == (1, 3)

    def test_a_run_that_hangs_ends_with_124_and_the_stacks_of_all_ranks(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        engine = bench.engine
        limits = Limits(wall_clock_s=None, hang_s=limit_s(6.0))
        handle = engine.submit(engine.plan(bench.spec(tmp_path, HANGING, limits=limits)), {})
        status = bench.wait(handle)
        assert (status.state, status.exit_code) == (RunState.FAILED, 124)
        lines = list(engine.logs(handle, None, follow=False))
        for rank, function in enumerate(["all_reduce", "read_a_file"]):
            assert any(line.endswith(f" in {function}") for line in texts(lines, rank))
        error = engine.store.error(handle)
        assert error
        assert (error.rank, error.cause, error.exit_code) == (1, "hang", 124)
        reason = (
            f"rank 1 on {error.host}: hang: no output of any rank, no metrics and no checkpoint for "
            f"{limits.hang_s:g} s; it is not in the collective that the others wait in (train.py:5)"
        )
        assert status.reason == reason

    def test_cancel_ends_a_run_and_is_silent_about_one_that_is_over(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        engine = bench.engine
        handle = engine.submit(engine.plan(bench.spec(tmp_path, SLEEPING)), {})
        assert next(iter(engine.logs(handle, None, follow=True))).text == "asleep"
        engine.cancel(handle)
        assert bench.wait(handle).state is RunState.CANCELLED
        engine.cancel(handle)
        assert engine.store.status(handle).state is RunState.CANCELLED
