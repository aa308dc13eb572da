"""Push against a real registry (Debian's docker-registry), by real buildah."""

import shutil
from pathlib import Path

import pytest

from jobs.host import trust
from jobs.images.recipes import read_recipe
from tests.fakes.containers import buildah, buildah_storage, registry
from tests.fakes.launching import Launching

ROOT = Path(__file__).parents[2]


@pytest.fixture
def launching(tmp_path, capsys, monkeypatch):
    """`launch` on a project of its own, with buildah alone."""
    project = tmp_path / "project"
    shutil.copytree(ROOT / "images", project / "images")
    (project / "trainer").mkdir()
    monkeypatch.setattr(trust, "INSTALLED", project)
    monkeypatch.chdir(tmp_path)  # the clone that the tests are in would be taken
    with buildah_storage(tmp_path / "buildah", monkeypatch):
        yield Launching(tmp_path, capsys)


def make_image(reference, folder):
    """A small image in no time: one file on nothing."""
    (folder / "file").write_text(reference)
    container = buildah("from", "scratch")
    buildah("copy", "--quiet", container, folder / "file", "/file")
    buildah("commit", "--quiet", container, reference)
    buildah("rm", container)


def test_what_was_pushed_is_what_the_printed_digest_names(launching, tmp_path):
    recipe = read_recipe("pytorch", "cpu", trust.INSTALLED)
    make_image(recipe.reference, tmp_path)
    with registry(tmp_path / "registry") as host:
        typed = launching.type_bare("image", "push", "pytorch", "--registry", f"{host}/yard")
        assert typed.code == 0, typed.err
        pinned = typed.out.split()[2]
        name, _, _ = pinned.partition("@")
        assert name == f"{host}/yard/pytorch"
        # By digest, from the registry alone.
        buildah("rmi", "--all", "--force")
        buildah("pull", "--quiet", "--tls-verify=false", pinned)
        container = buildah("from", "--pull-never", pinned)
        assert (Path(buildah("mount", container)) / "file").read_text() == recipe.reference
        buildah("rm", container)


def test_a_registry_that_is_gone_is_told_with_the_login_to_try(launching, tmp_path):
    with registry(tmp_path / "registry") as host:
        pass
    recipe = read_recipe("tensorflow", "cpu", trust.INSTALLED)
    make_image(recipe.reference, tmp_path)
    typed = launching.type_bare("image", "push", "tensorflow", "--registry", host)
    assert typed.code == 1
    assert f"hint: buildah login {host}, if access was refused" in typed.err
