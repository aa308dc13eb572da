"""Record a run's plan, code and environment."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from jobs.contracts.spec import RUN_RECORD_SCHEMA, Environment, GitState, Plan, RunRecord
from jobs.host.git import GitFailure, Repository
from jobs.host.units import now
from jobs.runs.code import NEVER_SENT
from jobs.runs.run_folder import read_record
from jobs.runs.store import RUN_ID

MAX_DIFF_CHARACTERS = 1 << 20
_MOST_NAMES = 100


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
    run_dir = code.parent
    is_copy = code.name == "code" and RUN_ID.fullmatch(run_dir.name) is not None
    if is_copy and (run_dir / "run.json").exists():
        return read_record(run_dir).git
    return git_state(code, copy, only)


def git_state(folder: Path, copy: Path, only: Sequence[str] = ()) -> GitState | None:
    """Read the commit that the folder is at, and its changes since; None outside of git.

    Told is what changed in files that are in `copy`, the folder that travels, and of deleted ones
    the name: nothing that stays here. `only` names the parts that travel (all when empty). Where
    the commit is known and the changes are not, the diff says why.
    """
    repository = Repository(folder)
    try:
        repository.require_own()
        commit = repository.commit()
    except GitFailure:
        return None
    try:
        diff = _dirty_diff(repository, copy, only)
    except GitFailure as failure:
        diff = f"not known: {failure}"
    return GitState(commit=commit, dirty_diff=diff[:MAX_DIFF_CHARACTERS] or None)


def _dirty_diff(repository: Repository, copy: Path, only: Sequence[str]) -> str:
    listed = repository.diff([*only] or ["."], "--name-status", "-z", "--relative")
    words = os.fsdecode(listed).split("\0")
    changes = list(zip(words[::2], words[1::2], strict=False))  # after the last one is a "\0"
    kept = [name for how, name in changes if how != "D" and os.path.lexists(copy / name)]
    deleted = [
        name for how, name in changes if how == "D" and NEVER_SENT.isdisjoint(name.split("/"))
    ]
    # A name stands for all that lies below it, too: git itself holds the two kinds apart.
    parts = [repository.diff(names, "--diff-filter=d") for names in _few_at_once(kept)]
    parts += [
        repository.diff(names, "--diff-filter=D", "--irreversible-delete")
        for names in _few_at_once(deleted)
    ]
    return b"".join(parts).decode(errors="replace")


def _few_at_once(names: list[str]) -> Iterator[list[str]]:
    """Cut names into as many as the arguments of a process may be."""
    for start in range(0, len(names), _MOST_NAMES):
        yield names[start : start + _MOST_NAMES]
