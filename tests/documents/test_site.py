"""The site serves Mermaid itself, and only the one that was pinned."""

import io
import tarfile

import pytest

from tests.documents import site

SCRIPT = b"mermaid"


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """The folder of the theme's scripts, and an archive of Mermaid."""
    archive = tmp_path / "mermaid.tgz"
    with tarfile.open(archive, "w:gz") as package:
        member = tarfile.TarInfo("package/dist/mermaid.tiny.js")
        member.size = len(SCRIPT)
        package.addfile(member, io.BytesIO(SCRIPT))
    monkeypatch.setattr(site, "ARCHIVE", archive)
    folder = tmp_path / "scripts"
    folder.mkdir()
    return folder


def test_the_theme_loads_mermaid_from_beside_itself(scripts):
    bundle = scripts / "bundle.0.min.js"
    bundle.write_text(f"load({site.REMOTE})", encoding="utf-8")
    site.serve_mermaid(scripts)
    assert bundle.read_text(encoding="utf-8") == f"load({site.LOCAL})"
    assert (scripts / "mermaid.js").read_bytes() == SCRIPT


def test_a_theme_that_loads_it_from_elsewhere_is_refused(scripts):
    (scripts / "bundle.0.min.js").write_text("load(elsewhere)", encoding="utf-8")
    with pytest.raises(SystemExit, match="does not load"):
        site.serve_mermaid(scripts)


def test_another_archive_than_the_pinned_one_is_removed_and_refused(scripts):
    with pytest.raises(SystemExit, match="its SHA-512 is"):
        site.bring_mermaid()
    assert not site.ARCHIVE.exists()
