"""Fixtures of the command line's tests."""

import pytest

from tests.fakes.launching import Launching, use_fake_engine

JOB = """\
name: first
image: pytorch
script: train.py
args: {epochs: 3}
processes_per_node: 2
"""


@pytest.fixture
def launching(tmp_path, capsys, monkeypatch):
    """`launch` on an engine that starts nothing, in a working folder of its own."""
    use_fake_engine(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINYARD_STACK", raising=False)
    return Launching(tmp_path, capsys)


@pytest.fixture
def job(launching):
    """The path of a job whose script lies beside it."""
    (launching.folder / "train.py").write_text("")
    return launching.write_job(JOB)
