"""Building and pushing through an engine: what it is told, what is kept, and what goes wrong.

The engine is a program that plays buildah, podman or docker (tests/fakes/fake_container_engine.py).
"""

import json
import os
import re
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure, NotFound
from jobs.host.progress import BuildProgress
from jobs.images.build import build_image, build_log, push_image, record_folder
from jobs.images.engines import ENGINES, find_engine
from jobs.images.recipes import read_recipe
from tests.fakes import fake_container_engine

ROOT = Path(__file__).parents[3]
SECRETS = ("PIP_", "UV_", "SSL_CERT", "REQUESTS_CA", "XDG_")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with the real images, on a machine without an engine and without an own index."""
    for name in [each for each in os.environ if each.startswith(SECRETS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    shutil.copytree(ROOT / "images", tmp_path / "project" / "images")
    (tmp_path / "project" / "trainer").mkdir()
    (tmp_path / "project" / "trainer" / "__init__.py").write_text("")
    return tmp_path / "project"


@pytest.fixture(params=ENGINES)
def program(request, tmp_path):
    """Each engine in turn, the only one on PATH."""
    return fake_container_engine.install(tmp_path / "bin", request.param)


@pytest.fixture
def buildah(tmp_path):
    return fake_container_engine.install(tmp_path / "bin", "buildah")


def progress():
    return BuildProgress("starting")


def build(project, variant="cpu"):
    recipe = read_recipe("pytorch", variant, project)
    return build_image(
        recipe, find_engine(), project, progress=progress, report=nullcontext
    ), recipe


def built_with(program):
    return [
        call for call in fake_container_engine.calls(program) if call["arguments"][0] == "build"
    ]


def test_the_first_that_is_on_path_is_taken(tmp_path, project):
    for name in reversed(ENGINES):
        program = fake_container_engine.install(tmp_path / "bin", name)
        assert (find_engine().name, find_engine().program) == (name, program)


def test_without_an_engine_the_error_says_what_to_install(project):
    with pytest.raises(EnvironmentFailure) as caught:
        find_engine()
    assert caught.value.message == (
        "none of buildah, podman, docker is on PATH, and one is needed for containers"
    )
    assert caught.value.hint == (
        "apt-get install buildah; to run jobs on this machine: launch image install NAME"
    )


def test_a_build_is_told_everything_by_its_arguments_and_its_context(project, program):
    is_new, recipe = build(project)
    assert is_new
    (call,) = built_with(program)
    assert call["context"] == sorted(recipe.files)
    given = dict(
        each.removeprefix("--build-arg=").split("=", 1)
        for each in call["arguments"]
        if each.startswith("--build-arg=")
    )
    if program.name == "docker":
        assert given.pop("SOURCE_DATE_EPOCH") == "315532800"
    else:
        assert "--timestamp=315532800" in call["arguments"]
    name, digest = recipe.base
    assert given == {
        **recipe.arguments,
        "BASE_NAME": name,
        "BASE_DIGEST": digest,
        "REVISION": "",
        "SOURCE": "",
        "VERSION": "0.1.0",
    }
    assert f"--tag={recipe.reference}" in call["arguments"]
    assert call["secrets"] == []


def test_the_same_content_is_not_built_twice(project, program):
    assert build(project)[0] is True
    assert build(project)[0] is False
    assert len(built_with(program)) == 1
    (project / "trainer" / "__init__.py").write_text("# new\n")
    assert build(project)[0] is True


def test_a_build_leaves_its_record_and_the_bill_of_materials(project, program):
    _, recipe = build(project)
    folder = record_folder(recipe, project)
    assert (folder / "sbom.cdx.json").read_bytes() == fake_container_engine.SBOM
    record = json.loads((folder / "build.json").read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record.pop("built"))
    assert record.pop("duration_s") >= 0
    assert record == {
        "reference": recipe.reference,
        "engine": program.name,
        "base": recipe.arguments["BASE_IMAGE"],
        "arguments": dict(recipe.arguments),
        "revision": "",
    }


def test_a_lost_bill_of_materials_is_read_again_without_a_build(project, buildah):
    _, recipe = build(project)
    bill = record_folder(recipe, project) / "sbom.cdx.json"
    bill.unlink()
    assert build(project)[0] is False
    assert bill.read_bytes() == fake_container_engine.SBOM


def test_a_failed_build_ends_with_the_log_and_leaves_no_record(project, program, monkeypatch):
    monkeypatch.setenv("FAKE_ENGINE_FAILS", "build")
    with pytest.raises(EnvironmentFailure) as caught:
        build(project)
    recipe = read_recipe("pytorch", "cpu", project)
    assert caught.value.message.startswith(f"building {recipe.reference} failed (exit code 125)")
    assert caught.value.message.endswith(f"fake {program.name} was told to fail")
    assert not record_folder(recipe, project).exists()


def test_the_machines_index_is_lent_and_neither_typed_nor_logged(project, program, monkeypatch):
    secret = "https://reader:hunter2@index.example/simple"
    monkeypatch.setenv("PIP_INDEX_URL", secret)
    build(project)
    (call,) = built_with(program)
    assert call["secrets"] == [f"PIP_INDEX_URL={secret}\nUV_DEFAULT_INDEX={secret}\n"]
    written = [path for path in project.rglob("*") if path.is_file()]
    assert [path for path in written if b"hunter2" in path.read_bytes()] == []
    assert all("hunter2" not in argument for argument in call["arguments"])
    # What was lent is gone.
    given = next(each for each in call["arguments"] if each.startswith("--secret="))
    assert not Path(given.partition("src=")[2]).exists()


def test_an_origin_and_a_commit_become_labels_without_credentials(project, buildah, monkeypatch):
    git = shutil.which("git", path="/usr/bin:/usr/local/bin")
    if git is None:
        pytest.skip("git is not installed")
    (buildah.parent / "git").symlink_to(git)

    def run_git(*arguments):
        settings = ("-c", "user.name=x", "-c", "user.email=x@example.com")
        subprocess.run([git, "-C", project, *settings, *arguments], check=True, capture_output=True)

    run_git("init", "-q")
    run_git("remote", "add", "origin", "https://me:hunter2@git.example/team/yard.git")
    run_git("add", ".")
    run_git("commit", "-q", "-m", "all")
    build(project)
    (project / "trainer" / "__init__.py").write_text("# changed\n")
    build(project)
    commit = (project / ".git" / "refs" / "heads").glob("*")
    revision = next(iter(commit)).read_text().strip()
    labels = [
        {each for each in call["arguments"] if "REVISION=" in each or "SOURCE=" in each}
        for call in built_with(buildah)
    ]
    source = "--build-arg=SOURCE=https://git.example/team/yard.git"
    assert labels == [
        {source, f"--build-arg=REVISION={revision}"},
        {source, f"--build-arg=REVISION={revision}-dirty"},
    ]


def test_a_push_gives_the_reference_by_digest(project, program):
    _, recipe = build(project)
    pinned = push_image(
        recipe, find_engine(), project, "registry.example/yard", progress=progress()
    )
    assert pinned == f"registry.example/yard/pytorch@{fake_container_engine.DIGEST}"
    sent = [
        call["arguments"]
        for call in fake_container_engine.calls(program)
        if call["arguments"][0] in {"tag", "push"}
    ]
    target = f"registry.example/yard/pytorch:{recipe.tag}"
    if program.name == "docker":
        assert sent == [["tag", recipe.reference, target], ["push", target]]
    else:
        ((verb, digest_file, *names),) = sent
        assert (verb, names) == ("push", [recipe.reference, f"docker://{target}"])
        assert digest_file.startswith("--digestfile=")


def test_only_a_registry_of_this_machine_is_pushed_to_without_tls(project, buildah):
    _, recipe = build(project)
    for registry in ("127.0.0.1:5000/yard", "registry.example", "localhost.example"):
        push_image(recipe, find_engine(), project, registry, progress=progress())
    pushes = [
        "--tls-verify=false" in call["arguments"]
        for call in fake_container_engine.calls(buildah)
        if call["arguments"][0] == "push"
    ]
    assert pushes == [True, False, False]


def test_a_push_before_the_build_says_what_to_type(project, program):
    recipe = read_recipe("pytorch", "cuda", project)
    with pytest.raises(NotFound) as caught:
        push_image(recipe, find_engine(), project, "registry.example", progress=progress())
    assert caught.value.message == f"{recipe.reference} is not built on this machine"
    assert caught.value.hint == "launch image build pytorch --variant cuda"


def test_a_refused_push_says_how_to_log_in(project, program, monkeypatch):
    _, recipe = build(project)
    monkeypatch.setenv("FAKE_ENGINE_FAILS", "push")
    with pytest.raises(EnvironmentFailure) as caught:
        push_image(recipe, find_engine(), project, "registry.example/yard", progress=progress())
    assert caught.value.hint == f"{program.name} login registry.example, if access was refused"


def test_a_program_that_is_none_is_told_apart_from_a_missing_image(project, tmp_path):
    broken = tmp_path / "bin" / "buildah"
    broken.parent.mkdir()
    broken.write_bytes(b"\x7fELF no program")
    broken.chmod(0o755)
    with pytest.raises(EnvironmentFailure, match="buildah does not answer"):
        build(project)


def test_the_log_holds_all_that_the_engine_said(project, program):
    _, recipe = build(project)
    lines = build_log(recipe, project).read_text().splitlines()
    assert lines[0].startswith(f"+ {program} build ")
    assert len(lines) == 3
