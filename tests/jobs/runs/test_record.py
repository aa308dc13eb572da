"""A run's record: of the code it says what the run was given, and of nothing else what it holds."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.spec import GitState, Plan, RunRecord
from jobs.runs.code import FETCHED, snapshot
from jobs.runs.record import git_state, make_record
from tests.fakes.gangs import make_environment, make_spec
from tests.jobs.runs.test_code import write

Git = Callable[..., str]


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


def test_a_file_run_json_beside_the_code_makes_it_no_copy_of_a_run(tmp_path: Path) -> None:
    write(tmp_path / "mine", {"code/train.py": "", "run.json": '{"epochs": 3}'})
    assert record_of(tmp_path / "mine" / "code", tmp_path / "20261122-000000-0001").git is None


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.fixture
def git(source: Path) -> Git:
    """Types `git WORDS` in the source, which is a repository of its own."""

    def typed(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.check_output(["git", *identity, *words], cwd=source, text=True).strip()

    typed("init", "-q")
    return typed


def state(source: Path, copy: Path, only: tuple[str, ...] = ()) -> GitState:
    """What the record of a run that begins now says."""
    snapshot(source, copy, only=only)
    found = git_state(source, copy, only)
    assert found is not None
    return found


def test_git_state_is_the_commit_and_what_was_changed_since(
    source: Path, tmp_path: Path, git: Git
) -> None:
    write(source, {"a.py": "one\n", "b/c.py": ""})
    assert git_state(tmp_path, source) is None
    assert git_state(source, source) is None  # without a commit
    git("add", "-A")
    git("commit", "-qm", "first")
    clean = state(source, tmp_path / "clean")
    assert clean == GitState(commit=git("rev-parse", "HEAD"), dirty_diff=None)
    write(source, {"a.py": "two\n"})
    dirty = state(source, tmp_path / "dirty")
    assert dirty.dirty_diff is not None
    assert dirty.dirty_diff.splitlines()[-2:] == ["-one", "+two"]
    assert state(source, tmp_path / "b", ("b",)) == clean  # what was changed does not travel
    assert state(source, tmp_path / "a", ("a.py",)) == dirty


@pytest.mark.parametrize("above", ["", "job/"], ids=["whole", "a folder of the repository"])
def test_git_state_tells_nothing_of_files_that_stay_here(
    source: Path, tmp_path: Path, git: Git, above: str
) -> None:
    code = source / above
    kept = dict.fromkeys((".env", "conf/.env", ".secrets.env", "x/.secrets.env"), "SECRET=old\n")
    fetched = {f"results/{FETCHED}": "{}", "results/metrics.jsonl": "SECRET=old\n"}
    other = {
        "train.py": "one\n",
        "*": "one\n",
        "gone.env": "SECRET=old\n",
        "turned/.env": "SECRET=old\n",
        ".launchignore": ".env\n",
    }
    write(code, {**kept, **fetched, **other})
    write(source, {"above.env": "SECRET=old\n"})
    git("add", "-f", "-A")
    git("commit", "-qm", "first")
    for name in (*kept, "results/metrics.jsonl"):
        write(code, {name: "SECRET=new\n"})
    write(source, {"above.env": "SECRET=new\n"} if above else {})
    git("rm", "-q", "--cached", f"{above}conf/.env", f"{above}x/.secrets.env")
    (code / "gone.env").unlink()
    git("rm", "-q", f"{above}turned/.env")
    write(code, {"turned": "a file now\n"})
    git("add", f"{above}turned")
    write(code, {"train.py": "two\n", "*": "two\n"})
    told = state(code, tmp_path / "copy").dirty_diff
    assert told is not None
    assert "SECRET" not in told
    names = [line.split(" b/")[1] for line in told.splitlines() if line.startswith("diff --git")]
    # Of what is deleted for git the names alone.
    assert names == [
        above + name for name in ("*", "train.py", "turned", "conf/.env", "gone.env", "turned/.env")
    ]
    assert [line for line in told.splitlines() if line in ("-one", "+two")] == ["-one", "+two"] * 2
