"""Attacker: whoever answers for the package index, or stands between it and us.

He could hand set-up a uv of his own, which installs, and so runs, all the rest.
"""

from __future__ import annotations

import io
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure
from tools import install_uv
from tools.phases import Phases
from tools.project import Project

REPO = Path(__file__).parents[2]


def test_a_uv_whose_hash_is_not_the_pinned_one_is_not_installed(tmp_path, monkeypatch):
    root = tmp_path / "clone"
    (root / "images").mkdir(parents=True)
    shutil.copy(REPO / "images/uv.txt", root / "images/uv.txt")
    project = Project(root=root, cache=tmp_path / "cache")
    monkeypatch.setenv("PIP_INDEX_URL", make_index(tmp_path / "index").as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    monkeypatch.setenv("PATH", "")

    with pytest.raises(EnvironmentFailure, match="installing uv failed"):
        install_uv.ensure_uv(project, Phases(io.StringIO(), environ={}))

    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in (
        project.state / "logs/uv.log"
    ).read_text().replace("\n", " ")
    assert not (project.state / "uv").exists()


def make_index(folder: Path) -> Path:
    """A package index that has a forged uv of the pinned version."""
    version = re.search(r"^uv==(\S+)", (REPO / "images/uv.txt").read_text(), re.MULTILINE)[1]
    name = f"uv-{version}"
    page = folder / "uv"
    page.mkdir(parents=True)
    wheel = f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(page / wheel, "w") as archive:
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        about = f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n"
        archive.writestr(f"{name}.dist-info/METADATA", about)
        archive.writestr(f"{name}.dist-info/RECORD", "")
        archive.writestr("bin/uv", "#!/bin/sh\necho taken over\n")
    (page / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    return folder
