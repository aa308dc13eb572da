"""A new image's folder: its files, and the command of its lock."""

from contextlib import nullcontext

import pytest

from jobs.contracts.errors import LaunchError, NotFound
from jobs.images.recipes import read_recipe
from jobs.images.runtimes import describe, horovod_key, list_images
from jobs.images.starting import lock_command, lock_image, start_image
from tests.fakes.shipped_images import SHIPPED, copy_images


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copy_images(tmp_path / "project")
    (tmp_path / "project" / "trainer").mkdir()
    return tmp_path / "project"


@pytest.mark.parametrize("base", SHIPPED)
def test_a_new_image_is_valid_at_once(project, base):
    folder, source = start_image("mine", base, project), project / "images" / base
    written = {path.name: path.read_text() for path in folder.iterdir()}
    below = {path.name: path.read_text() for path in source.iterdir()}
    assert written == below
    assert "mine" in list_images(project)
    assert describe("mine", project)["built"] is False
    assert horovod_key("mine", project) == horovod_key(base, project)
    for variant in ("cpu", "cuda"):
        recipe = read_recipe("mine", variant, project)
        assert recipe.base == read_recipe(base, variant, project).base
        assert f"images/mine/{recipe.arguments['LOCK']}" in recipe.files
        assert recipe.arguments["IMAGE"] == "mine"


def test_a_whole_dockerfile_of_the_base_is_rewritten_for_the_new_image(project):
    """As images had before one text followed the bases of all of them."""
    path = project / "images" / "pytorch" / "Dockerfile"
    own = "FROM ${BASE_IMAGE}\nCOPY images/pytorch/${LOCK} /x\nRUN y --name pytorch --framework pytorch\n"
    path.write_text(path.read_text() + own)
    start_image("mine", "pytorch", project)
    recipe = read_recipe("mine", "cpu", project)
    assert recipe.text.endswith(
        "FROM ${BASE_IMAGE}\nCOPY images/mine/${LOCK} /x\nRUN y --name mine --framework pytorch\n"
    )
    assert "images/common.Dockerfile" not in recipe.files


@pytest.mark.parametrize("name", ["Mine", "-mine", "a/b", "..", "", "mine\n", "a" * 60])
def test_a_name_that_no_image_can_have_is_refused(project, name):
    with pytest.raises(LaunchError, match="invalid image name"):
        start_image(name, "pytorch", project)


def test_a_folder_that_is_there_stays_as_it_is(project):
    before = (project / "images" / "tensorflow" / "Dockerfile").read_text()
    with pytest.raises(LaunchError, match="is there already"):
        start_image("tensorflow", "pytorch", project)
    assert (project / "images" / "tensorflow" / "Dockerfile").read_text() == before


def test_a_lock_is_written_by_the_command_that_wrote_it_before(tmp_path):
    packages = tmp_path / "requirements.in"
    packages.write_text("numpy\n")
    first = ["pip", "compile", "--generate-hashes", "--universal", "--python-version", "3.11"]
    assert lock_command(packages) == [*first, "requirements.in", "-o", "requirements.txt"]
    (tmp_path / "requirements.txt").write_text("# This file\n#    uv pip compile -p 3.12 a -o b\n")
    assert lock_command(packages) == ["pip", "compile", "-p", "3.12", "a", "-o", "b"]


def test_a_lock_is_written_beside_its_packages(project, monkeypatch):
    """uv is played: it notes where it was started, and with what."""
    uv = project / "uv"
    uv.write_text('#!/bin/sh\necho "$PWD $*" > requirements.txt\n')
    uv.chmod(0o755)
    monkeypatch.setenv("UV", str(uv))
    folder = project / "images" / "own"
    folder.mkdir()
    (folder / "requirements.in").write_text("numpy\n")
    assert lock_image("own", project, report=nullcontext) == folder / "requirements.txt"
    words = "pip compile --generate-hashes --universal --python-version 3.11"
    assert (folder / "requirements.txt").read_text() == (
        f"{folder} {words} requirements.in -o requirements.txt --quiet\n"
    )


def test_an_image_that_is_not_there_has_no_lock(project):
    with pytest.raises(NotFound, match="no image `nix`"):
        lock_image("nix", project, report=nullcontext)
