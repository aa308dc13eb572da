from __future__ import annotations

import pytest

from jobs.host.trust import trust
from tests.fakes.pulumi_stack import FakeProject


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    made = FakeProject(tmp_path / "project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trust(made.root)
    monkeypatch.chdir(made.root)
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    return made
