"""Types `launch` for tests: on an environment file, with an engine that starts no process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from jobs.cli import main
from jobs.contracts.spec import (
    Environment,
    JobSpec,
    LogLine,
    Plan,
    RankError,
    RunHandle,
    RunRecord,
    RunState,
    RunStatus,
)
from jobs.engines import ENGINES
from jobs.engines.local.engine import LocalEngine
from jobs.host.files import write_file
from jobs.host.units import now
from jobs.runs.run_folder import RunEvent, append_event
from jobs.runs.store import RunStore
from tests.fakes.gangs import make_environment, make_spec

TIME = "2026-01-02T03:04:05.000006Z"


class FakeEngine(LocalEngine):
    """Writes real run folders; how a run ends is told by the job's env ENDS_AS."""

    submitted: ClassVar[list[tuple[Plan, dict[str, str]]]] = []
    cancelled: ClassVar[list[str]] = []

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)

    def plan(self, spec: JobSpec) -> Plan:
        request = msgspec.Raw(msgspec.json.encode({"compute": spec.compute, "argv": spec.command}))
        return Plan(engine="local", spec=spec, request=request)

    def submit(self, plan: Plan, secrets: Mapping[str, str]) -> RunHandle:
        self.submitted.append((plan, dict(secrets)))
        handle = self.store.claim()
        run_dir = Path(handle.run_dir)
        record = RunRecord(
            schema=1,
            id=handle.id,
            created=now(),
            plan=plan,
            git=None,
            image_digest="sha256:1",
            environment_digest="sha256:2",
        )
        self.store.commit(record)
        append_event(run_dir, RunEvent(ts=TIME, state=RunState.RUNNING))
        (run_dir / "logs").mkdir()
        (run_dir / "logs" / "rank-00000.log").write_text(f"{TIME} hello\n")
        state = RunState(plan.spec.env.get("ENDS_AS", "completed"))
        if state is RunState.FAILED:
            error = RankError(
                rank=1,
                host="node-a",
                cause="uncaught exception",
                message="ValueError: no luck",
                traceback="Traceback (most recent call last):\nValueError: no luck",
                exit_code=3,
            )
            write_file(run_dir / "error.json", msgspec.json.encode(error))
        codes = {RunState.COMPLETED: 0, RunState.FAILED: 3}
        code = codes.get(state)
        ended = "2026-01-02T03:04:47.000006Z"
        reason = plan.spec.env.get("REASON")
        append_event(run_dir, RunEvent(ts=ended, state=state, reason=reason, exit_code=code))
        return handle

    def logs(
        self, handle: RunHandle, ranks: Sequence[int] | None, *, follow: bool, **_: Any
    ) -> Iterator[LogLine]:
        lines = [LogLine(ts=TIME, rank=0, text="hello"), LogLine(ts=TIME, rank=1, text="there")]
        yield from (line for line in lines if ranks is None or line.rank in ranks)

    def cancel(self, handle: RunHandle) -> None:
        self.cancelled.append(handle.id)

    def fetch(self, handle: RunHandle, into: Path) -> Path:
        into.mkdir(parents=True, exist_ok=True)
        return into


class Typed:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        return msgspec.json.decode(self.out)


class Launching:
    """`launch` in this process, on a workspace of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.env_file = folder / "environment.json"
        made = make_environment(self.workspace, nodes=2, processes=4)
        free = msgspec.structs.replace(
            made.clusters["cpu"], price_per_node_hour=0.0, cpus_per_node=4
        )
        self.write_environment(msgspec.structs.replace(made, clusters={"cpu": free}))
        self._capsys = capsys

    def write_environment(self, environment: Environment) -> None:
        self.environment = environment
        self.env_file.write_bytes(msgspec.json.encode(environment))

    def type(self, *words: str) -> Typed:
        """Type `launch WORDS --env FILE`."""
        return self.type_bare(*words, "--env", str(self.env_file))

    def type_bare(self, *words: str) -> Typed:
        """Type `launch WORDS`."""
        self._capsys.readouterr()
        code = main(list(words))
        captured = self._capsys.readouterr()
        return Typed(code, captured.out, captured.err)

    def write_job(self, text: str, name: str = "job.yaml") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def runs(self) -> list[RunStatus]:
        return RunStore(self.workspace).list(None)

    def run_folders(self) -> list[str]:
        """Every folder under runs/, whether or not it is a run."""
        runs = self.workspace / "runs"
        return sorted(each.name for each in runs.iterdir()) if runs.exists() else []

    def add_run(
        self, *, ends_as: str = "completed", reason: str | None = None, **changes: Any
    ) -> str:
        """A finished run, without a command line."""
        env = {"ENDS_AS": ends_as} | ({"REASON": reason} if reason else {})
        spec = make_spec(["python", "train.py"], **{"env": env, **changes})
        engine = FakeEngine(self.environment)
        handle = engine.submit(engine.plan(spec), {})
        engine.submitted.pop()
        time.sleep(0.0001)  # ids are microseconds
        return handle.id


def use_fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `local` be the engine of this module; its records are emptied."""
    monkeypatch.setitem(ENGINES, "local", "tests.fakes.launching:FakeEngine")
    FakeEngine.submitted.clear()
    FakeEngine.cancelled.clear()
