"""Hints name Pulumi as the shell finds it: in an activated environment, by uv, or by its path."""

import os
import sys

import pytest

from jobs.host import trust
from jobs.host.pulumi_command import as_typed_here

HINT = "uv run pulumi stack init dev, then `pulumi up -s dev`"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project whose environment is not activated, on a machine without uv."""
    root = tmp_path / "clone"
    for program in (root / ".venv" / "bin" / "pulumi", tmp_path / "uv" / "uv"):
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
    (root / "docs").mkdir()
    (root / "Pulumi.yaml").write_text("name: trainyard\n")
    monkeypatch.setattr(trust, "INSTALLED", root)
    monkeypatch.setattr(sys, "prefix", str(root / ".venv"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(root)
    return root


def test_without_uv_and_activation_the_path_is_named(root, monkeypatch):
    own = ".venv/bin/pulumi"
    assert as_typed_here(HINT) == f"{own} stack init dev, then `{own} up -s dev`"
    monkeypatch.chdir(root / "docs")
    assert as_typed_here("pulumi up -s dev") == f"{root}/.venv/bin/pulumi up -s dev"
    monkeypatch.chdir(root.parent)
    expected = f"clone/.venv/bin/pulumi -C {root} up -s dev"
    assert as_typed_here("pulumi up -s dev") == expected


def test_uv_and_an_activated_environment_name_it_shorter(root, monkeypatch):
    monkeypatch.setenv("PATH", str(root.parent / "uv"))
    assert as_typed_here("pulumi up -s dev") == "uv run pulumi up -s dev"
    monkeypatch.setenv("PATH", f"{root / '.venv' / 'bin'}{os.pathsep}{root.parent / 'uv'}")
    assert as_typed_here(HINT) == "pulumi stack init dev, then `pulumi up -s dev`"


def test_other_hints_stay_as_they_are(root):
    for hint in (
        "launch env show -s dev",
        "https://pulumi.com/docs, or /opt/pulumi up",
        "for whoever owns the stack: pulumi up -s dev",
    ):
        assert as_typed_here(hint) == hint
    (root / ".venv" / "bin" / "pulumi").unlink()
    assert as_typed_here(HINT) == HINT
