"""A run's record: what was asked for, with which code on which environment."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from jobs.contracts.spec import RUN_RECORD_SCHEMA, Environment, GitState, Plan, RunRecord
from jobs.host.units import now
from jobs.runs.code import git_state
from jobs.runs.store import read_record


def make_record(
    run_dir: Path, plan: Plan, environment: Environment, *, image_digest: str | None
) -> RunRecord:
    """Make the record of a new run; the copy of its code is in `run_dir`."""
    content = msgspec.json.encode(environment, order="sorted")
    spec = plan.spec
    return RunRecord(
        schema=RUN_RECORD_SCHEMA,
        id=run_dir.name,
        created=now(),
        plan=plan,
        git=_git_of(Path(spec.code), run_dir / "code", spec.code_only) if spec.code else None,
        image_digest=image_digest,
        environment_digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
    )


def _git_of(code: Path, copy: Path, only: Sequence[str]) -> GitState | None:
    """Read the code's state; for another run's copy the state that run was submitted with."""
    if code.name == "code" and (code.parent / "run.json").exists():
        return read_record(code.parent).git
    return git_state(code, copy, only)
