"""Set-up's own tools, started for real in an empty home: where they leave files of their own."""

from __future__ import annotations

import io
import os
import shutil
import subprocess

import pytest

from tools.install_azurite import find_node, npm_command, npm_environment
from tools.install_pulumi import go_environment
from tools.install_uv import sync_environment
from tools.phases import Phases
from tools.project import Project, this_project

OURS = this_project(os.environ)
PYPROJECT = '[project]\nname = "empty"\nversion = "1"\nrequires-python = ">=3.11"\n'
PYPROJECT += "[project.optional-dependencies]\nui = []\n"
LOCK = """\
version = 1
revision = 3
requires-python = ">=3.11"

[[package]]
name = "empty"
version = "1"
source = { virtual = "." }

[package.metadata]
provides-extras = ["ui"]
"""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The folders outside of clone and cache that a tool may write to; empty."""
    folders = {name: tmp_path / name.lower() for name in ("HOME", "TMPDIR")}
    for name, folder in folders.items():
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return lambda: sorted(
        str(each.relative_to(tmp_path))
        for folder in folders.values()
        for each in folder.rglob("*")
        if each.is_file()
    )


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "a clone"
    (root / ".trainyard").mkdir(parents=True)
    return Project(root=root, cache=tmp_path / "cache")


def test_go_leaves_no_telemetry_and_keeps_its_settings(project, elsewhere):
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not on PATH")
    asked = subprocess.run(
        [go, "env", "GOENV"],
        env=go_environment(project),
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout == f"{os.environ['HOME']}/.config/go/env\n"
    assert elsewhere() == []


def test_npm_leaves_no_compiled_code(elsewhere, tmp_path):
    node = find_node(OURS)
    subprocess.run(
        [*npm_command(node), "ls", "--cache", tmp_path / "npm"],
        cwd=tmp_path,
        env=npm_environment(node),
        capture_output=True,
        check=True,
    )
    assert elsewhere() == []


def test_uv_leaves_no_lock(project, elsewhere):
    own = OURS.state / "uv" / "bin" / "uv"
    uv = own if own.exists() else shutil.which("uv")
    (project.root / "pyproject.toml").write_text(PYPROJECT)
    (project.root / "uv.lock").write_text(LOCK)
    sync_environment(project, uv, Phases(io.StringIO(), environ={}))
    assert project.python.exists()
    assert elsewhere() == []
