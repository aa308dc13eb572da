"""A run's record: of the code it says what the run was given, and of nothing else what it holds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

from jobs.contracts.spec import Plan, RunRecord
from jobs.runs.code import snapshot
from jobs.runs.record import make_record
from tests.fakes.gangs import make_environment, make_spec


def record_of(code: Path, run_dir: Path) -> RunRecord:
    run_dir.mkdir()
    snapshot(code, run_dir / "code")
    plan = Plan(
        engine="local", spec=make_spec(["python"], code=str(code)), request=msgspec.Raw(b"{}")
    )
    return make_record(run_dir, plan, make_environment(run_dir), image_digest=None)


def test_a_record_holds_no_secret_of_the_code_and_a_copy_has_its_runs_git(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *words], cwd=code, check=True)

    code = tmp_path / "job"
    code.mkdir()
    before = {".env": "TOKEN=old", ".secrets.env": "TOKEN=old", "train.py": "one"}
    for name, text in {**before, ".launchignore": ".env"}.items():
        (code / name).write_text(text)
    git("init", "-q")
    git("add", "-A", "-f")
    git("commit", "-qm", "first")
    for name in before:
        (code / name).write_text("TOKEN=new" if "env" in name else "two")
    record = record_of(code, tmp_path / "20261122-000000-0001")
    assert record.id == "20261122-000000-0001"
    assert b"TOKEN" not in msgspec.json.encode(record)
    assert record.git is not None
    assert record.git.dirty_diff is not None
    assert "+two" in record.git.dirty_diff
    (tmp_path / record.id / "run.json").write_bytes(msgspec.json.encode(record))
    assert record_of(tmp_path / record.id / "code", tmp_path / "again").git == record.git
