"""Finding 13: git runs no program that a repository names, and reads nothing elsewhere.

Attacker: who made the archive or the clone that is trained from. By its `.git/config` he ran
programs as whoever typed `launch run`, also where the code runs on Azure only; by `core.worktree`
or a `.git` that leads elsewhere he had other files of the user written into the run's record.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jobs.contracts.spec import GitState
from jobs.host.git import GitFailure, Repository
from jobs.runs.record import git_state
from tests.busy import Bound


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a changed file."""
    return make_repository(tmp_path / "repo", "ours")


def make_repository(folder: Path, text: str) -> Path:
    folder.mkdir()
    type_git(folder, "init", "-q")
    (folder / "a.py").write_text(f"{text}\n")
    type_git(folder, "add", "-A")
    type_git(folder, "commit", "-qm", "first")
    (folder / "a.py").write_text("changed\n")
    return folder


def type_git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    return subprocess.check_output(["git", *identity, *words], cwd=folder, text=True).strip()


def spring(repo: Path, settings: dict[str, str]) -> Path:
    """Let the settings' values run a program; gives the file that it makes."""
    made = repo.parent / "made"
    program = repo.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {made}\ncat\n")
    program.chmod(0o755)
    for key, value in settings.items():
        type_git(repo, "config", key, value.replace("PROGRAM", str(program)))
    return made


@pytest.mark.parametrize(
    ("settings", "attributes"),
    [
        ({"core.fsmonitor": "PROGRAM"}, ""),
        ({"diff.external": "PROGRAM"}, ""),
        ({"diff.x.command": "PROGRAM"}, "*.py diff=x"),
        ({"diff.x.textconv": "PROGRAM"}, "*.py diff=x"),
        ({"filter.x.clean": "PROGRAM"}, "*.py filter=x"),
        ({"filter.x.process": "PROGRAM", "filter.x.required": "true"}, "*.py filter=x"),
        ({"core.pager": "PROGRAM", "pager.diff": "true"}, ""),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_a_program_that_the_repository_names_is_not_run(
    repo: Path, settings: dict[str, str], attributes: str
) -> None:
    made = spring(repo, settings)
    (repo / ".git" / "info" / "attributes").write_text(f"{attributes}\n")
    state = git_state(repo, repo)
    assert Repository(repo).is_changed(["a.py"])
    assert not made.exists()
    assert state is not None
    assert state.commit == type_git(repo, "rev-parse", "HEAD")
    assert state.dirty_diff is not None
    assert state.dirty_diff.splitlines()[-2:] == ["-ours", "+changed"]


def test_a_filter_whose_name_hides_it_leaves_the_diff_out(repo: Path) -> None:
    made = spring(repo, {"filter.x=y.clean": "PROGRAM"})
    (repo / ".git" / "info" / "attributes").write_text("*.py filter=x=y\n")
    told = "not known: its filters have names that cannot be switched off"
    commit = type_git(repo, "rev-parse", "HEAD")
    assert git_state(repo, repo) == GitState(commit=commit, dirty_diff=told)
    assert not made.exists()


def test_a_submodules_program_is_not_run(repo: Path, tmp_path: Path) -> None:
    inner = make_repository(tmp_path / "inner", "inner")
    type_git(repo, "submodule", "--quiet", "add", str(inner), "inner")
    type_git(repo, "commit", "-qam", "second")
    made = spring(repo / "inner", {"core.fsmonitor": str(tmp_path / "repo" / "program")})
    (repo / "program").write_text(f"#!/bin/sh\ntouch {made}\n")
    (repo / "program").chmod(0o755)
    (repo / "inner" / "a.py").write_text("changed, too\n")
    assert git_state(repo, repo) is not None
    assert not (repo / "made").exists()
    assert Repository(repo).diff(["inner"]) == b""  # neither asked nor told of
    assert not (repo / "made").exists()
    # A submodule is a repository of its own all the same.
    within = git_state(repo / "inner", repo / "inner")
    assert within is not None
    assert not (repo / "made").exists()
    assert within.dirty_diff is not None
    assert within.dirty_diff.splitlines()[-2:] == ["-inner", "+changed, too"]


def test_a_missing_object_is_not_fetched_by_a_program(repo: Path) -> None:
    made = spring(
        repo,
        {
            "remote.origin.url": f"ext::{repo.parent}/program",
            "remote.origin.promisor": "true",
            "protocol.ext.allow": "always",
            "extensions.partialClone": "origin",
            "core.repositoryFormatVersion": "1",
        },
    )
    blob = type_git(repo, "rev-parse", "HEAD:a.py")
    Path(repo, ".git", "objects", blob[:2], blob[2:]).unlink()
    state = git_state(repo, repo)
    assert not made.exists()
    assert state is not None
    assert (state.dirty_diff or "").startswith("not known: ")


def test_a_filter_of_the_users_own_is_not_run_either(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git-lfs, installed for the user, starts what the repository names as its extensions."""
    made = tmp_path / "made"
    (tmp_path / "global").write_text(f'[filter "x"]\n  clean = touch {made}; cat\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "global"))
    (repo / ".git" / "info" / "attributes").write_text("*.py filter=x\n")
    state = git_state(repo, repo)
    assert state is not None
    assert (state.dirty_diff or "").splitlines()[-2:] == ["-ours", "+changed"]
    assert not made.exists()


@pytest.mark.parametrize("way", ["commondir", "objects", "refs", "alternates"])
def test_a_history_that_is_borrowed_tells_nothing(repo: Path, tmp_path: Path, way: str) -> None:
    private = make_repository(tmp_path / "private", "secret") / ".git"
    if way == "commondir":
        (repo / ".git/commondir").write_text(f"{private}\n")
    elif way == "alternates":
        (repo / ".git/objects/info/alternates").write_text(f"{private}/objects\n")
    else:
        (repo / ".git" / way).rename(tmp_path / "away")
        (repo / ".git" / way).symlink_to(private / way)
    with pytest.raises(GitFailure, match="its history is "):
        Repository(repo).require_own()
    assert git_state(repo, repo) is None


@pytest.mark.parametrize("way", ["core.worktree", ".git file", ".git link"])
def test_a_repository_that_leads_elsewhere_tells_nothing(
    repo: Path, tmp_path: Path, way: str
) -> None:
    private = make_repository(tmp_path / "private", "secret")
    if way == "core.worktree":
        type_git(repo, "config", "core.worktree", str(private))
    else:
        (repo / ".git").rename(tmp_path / "away")
        if way == ".git file":
            (repo / ".git").write_text(f"gitdir: {private}/.git\n")
        else:
            (repo / ".git").symlink_to(private / ".git")
    with pytest.raises(GitFailure):
        Repository(repo).require_own()
    assert git_state(repo, repo) is None


def test_a_linked_worktree_is_its_own(repo: Path, tmp_path: Path) -> None:
    type_git(repo, "worktree", "add", "-q", str(tmp_path / "second"))
    (tmp_path / "second" / "a.py").write_text("here\n")
    state = git_state(tmp_path / "second", tmp_path / "second")
    assert state is not None
    assert state.dirty_diff is not None
    assert state.dirty_diff.splitlines()[-2:] == ["-ours", "+here"]


def test_variables_of_git_lead_nowhere_else(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = make_repository(tmp_path / "private", "secret")
    monkeypatch.setenv("GIT_DIR", str(private / ".git"))
    state = git_state(repo, repo)
    monkeypatch.delenv("GIT_DIR")
    assert state is not None
    assert state.commit == type_git(repo, "rev-parse", "HEAD")


def test_a_diff_that_takes_too_long_leaves_the_commit(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = type_git(repo, "rev-parse", "HEAD")
    # The real git, but for its diff.
    slow = tmp_path / "bin"
    slow.mkdir()
    real = subprocess.check_output(["/bin/sh", "-c", "command -v git"], text=True).strip()
    (slow / "git").write_text(
        f'#!/bin/sh\ncase " $* " in *" diff "*) exec sleep 60;; esac\nexec {real} "$@"\n'
    )
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(slow), prepend=os.pathsep)
    monkeypatch.setattr("jobs.host.git.TIMEOUT_S", 0.5)
    bound = Bound(30)
    told = "not known: git took longer than 0.5 s"
    assert git_state(repo, repo) == GitState(commit=commit, dirty_diff=told)
    bound.check()
