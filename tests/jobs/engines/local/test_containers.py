"""The command of a rank's container, and what a plan says of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.engines.local.containers import (
    ContainerRequest,
    Containers,
    container_request,
    find_program,
    make_ready,
    rank_environ,
    run_argv,
)
from jobs.engines.local.engine import LocalEngine
from jobs.engines.local.launchers import read_request
from jobs.runs.supervision import ContainerProgram
from tests.fakes import fake_container_engine
from tests.fakes.gangs import make_environment, make_spec

IMAGE = f"ghcr.io/own/image@sha256:{'a' * 64}"
TAKES_ENVIRONMENT = (
    "import json, os, sys; os.environ.update(json.load(sys.stdin)); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def argv_of(name: str, *, user: int = 1000, num_gpus: int = 0, shm_size: str | None = None):
    return run_argv(
        ContainerProgram(name=name, path=f"/usr/bin/{name}", environ={}),
        ContainerRequest(image=IMAGE, shm_size=shm_size),
        ["python3", "rank.pyz"],
        name="trainyard-1-0",
        run_dir=Path("/w/runs/1"),
        mounts={Path("/w/inputs"): "ro", Path("/w/runs/1"): "rw"},
        user=(user, 100),
        num_gpus=num_gpus,
    )


def test_a_rank_of_podman() -> None:
    assert argv_of("podman") == [
        *("/usr/bin/podman", "run", "--rm", "--interactive", "--name=trainyard-1-0"),
        *("--pull=never", "--network=host", "--pid=host", "--security-opt=label=disable"),
        *("--label=trainyard.run=/w/runs/1", "--label=trainyard.user=1000"),
        *("--userns=keep-id", "--user=1000:100", "--env=TRAINYARD_GANG=/w/runs/1", "--ipc=host"),
        *("--volume=/w/inputs:/w/inputs:ro", "--volume=/w/runs/1:/w/runs/1:rw"),
        *("--workdir=/w/runs/1", "--entrypoint=python3", IMAGE),
        *("-I", "-S", "-c", TAKES_ENVIRONMENT, "python3", "rank.pyz"),
    ]


@pytest.mark.parametrize(
    ("name", "user", "num_gpus", "shm_size", "more", "less"),
    [
        ("podman", 0, 0, None, {"--user=0:100", "--label=trainyard.user=0"}, {"--userns=keep-id"}),
        ("podman", 1000, 2, None, {"--device=nvidia.com/gpu=all"}, set[str]()),
        ("podman", 1000, 0, "8g", {"--shm-size=8g"}, {"--ipc=host"}),
        ("docker", 1000, 2, None, {"/usr/bin/docker", "--gpus=all"}, {"--userns=keep-id"}),
    ],
)
def test_options_follow_the_machine_and_the_job(
    name: str, user: int, num_gpus: int, shm_size: str | None, more: set[str], less: set[str]
) -> None:
    plain = set(argv_of("podman"))
    given = set(argv_of(name, user=user, num_gpus=num_gpus, shm_size=shm_size))
    assert given - plain == more
    assert less <= plain - given


def test_ranks_inherit_proxies_gpus_and_names_but_no_paths() -> None:
    gpus = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    environ = {"PATH": "/x", "HOME": "/home/me", "LD_LIBRARY_PATH": "/y", "USER": "me", "KEY": "1"}
    assert rank_environ(environ | gpus | {"https_proxy": "http://p"}) == {
        **gpus,
        "HOME": "/tmp",
        "USER": "me",
        "https_proxy": "http://p",
    }


def test_a_folder_of_images_needs_no_container() -> None:
    assert container_request(make_spec(["true"], image="pytorch", launcher="mpi")) is None


@pytest.mark.parametrize("launcher", ["mpi", "tensorflow"])
def test_a_launcher_that_containers_cannot_have_is_refused(launcher: str) -> None:
    with pytest.raises(LaunchError) as caught:
        container_request(make_spec(["true"], image=IMAGE, launcher=launcher))
    assert caught.value.message == (
        f"the local stack cannot run `launcher: {launcher}` in a registry's image"
    )


@pytest.mark.parametrize("name", ["podman", "docker"])
def test_a_plan_says_which_program_runs_the_containers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_container_engine.install(tmp_path / "bin", name)
    fake_container_engine.install(tmp_path / "bin", "buildah")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    engine = LocalEngine(make_environment(tmp_path))
    plan = engine.plan(make_spec(["python", "a.py"], image=IMAGE, launcher="torch", shm_size="2g"))
    assert plan.notes == (
        f"each rank runs in a container of {name}, on this machine's network",
        "other users of this machine can connect to the ranks' ports",
    )
    assert read_request(plan).container == ContainerRequest(image=IMAGE, shm_size="2g")
    engine.require_ready(plan.spec)


def test_without_podman_and_docker_a_run_is_refused_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_container_engine.install(tmp_path / "bin", "buildah")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    engine = LocalEngine(make_environment(tmp_path))
    plan = engine.plan(make_spec(["python", "a.py"], image=IMAGE))
    assert plan.notes == ()
    with pytest.raises(EnvironmentFailure) as caught:
        engine.require_ready(plan.spec)
    assert (caught.value.message, caught.value.hint) == (
        "none of podman, docker is on PATH, and one is needed to run a registry's image on this "
        "machine",
        "apt-get install podman; or use a folder of images/: launch image ls",
    )


def test_the_engine_gets_its_own_variables_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_container_engine.install(tmp_path / "bin", "docker")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/nowhere")
    found = find_program({"DOCKER_HOST": "unix:///d.sock", "AZURE_KEY": "x", "PATH": "/x"})
    assert found == ContainerProgram(
        name="docker", path=str(program), environ={"DOCKER_HOST": "unix:///d.sock"}
    )


def test_a_name_of_the_stack_stands_for_its_reference(tmp_path: Path) -> None:
    environment = msgspec.structs.replace(make_environment(tmp_path), images={"mine": IMAGE})
    engine = LocalEngine(environment)
    assert [engine.image_reference(each) for each in ("mine", "pytorch")] == [IMAGE, "pytorch"]


def test_an_image_is_fetched_once_and_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_container_engine.install(tmp_path / "bin", "podman")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("jobs.engines.local.containers.count_gpus", lambda: 1)
    make_ready(IMAGE, {})
    (tmp_path / "bin" / "images.json").write_text(json.dumps([IMAGE]))
    make_ready(IMAGE, {})
    trial = ["run", "--rm", "--pull=never", "--network=none", "--entrypoint=python3"]
    trial += ["--device=nvidia.com/gpu=all", IMAGE, "-I", "-S", "-c"]
    calls = [each["arguments"] for each in fake_container_engine.calls(program)]
    assert [call[:-1] if call[0] == "run" else call for call in calls] == [
        ["image", "inspect", IMAGE],
        ["pull", "--quiet", IMAGE],
        trial,
        ["image", "inspect", IMAGE],
        trial,
    ]


@pytest.mark.parametrize(
    ("fails", "message", "hint"),
    [
        (
            "pull",
            f"podman cannot fetch {IMAGE}: fake podman was told to fail",
            "podman login ghcr.io, if access was refused; or correct `image:`",
        ),
        (
            "run",
            f"podman cannot run ranks in {IMAGE}: fake podman was told to fail",
            f"ranks need python3 of 3.9 or newer; try: podman run --rm -it {IMAGE}",
        ),
    ],
)
def test_an_image_that_cannot_run_ranks_is_refused_in_the_words_of_the_engine(
    fails: str, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_container_engine.install(tmp_path / "bin", "podman")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("FAKE_ENGINE_FAILS", fails)
    monkeypatch.setattr("jobs.engines.local.containers.count_gpus", lambda: 0)
    with pytest.raises(EnvironmentFailure) as caught:
        make_ready(IMAGE, {})
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("name", "set_up", "option"),
    [
        ("podman", "cdi generate", "--device=nvidia.com/gpu=all"),
        ("docker", "runtime configure", "--gpus=all"),
    ],
)
def test_an_engine_without_nvidias_toolkit_is_told_how_to_get_it_and_how_to_do_without(
    name: str, set_up: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_container_engine.install(tmp_path / "bin", name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("FAKE_ENGINE_FAILS", "run")
    monkeypatch.setattr("jobs.engines.local.containers.count_gpus", lambda: 1)
    with pytest.raises(EnvironmentFailure) as caught:
        make_ready(IMAGE, {"CUDA_VISIBLE_DEVICES": "0"})
    assert caught.value.hint == (
        "ranks need python3 of 3.9 or newer, and for GPUs NVIDIA's container toolkit "
        f"(sudo nvidia-ctk {set_up}); CUDA_VISIBLE_DEVICES=-1 hides the GPUs; "
        f"try: {name} run --rm -it {option} {IMAGE}"
    )
    monkeypatch.delenv("FAKE_ENGINE_FAILS")
    make_ready(IMAGE, {"CUDA_VISIBLE_DEVICES": "-1"})
    trials = [each["arguments"] for each in fake_container_engine.calls(program)]
    assert [option in words for words in trials if words[0] == "run"] == [True, False]


@pytest.mark.parametrize(
    ("given", "are_shown"),
    [(None, True), ("1", True), ("${local_rank}", True), ("", False), ("-1", False)],
)
def test_a_rank_from_which_gpus_are_hidden_asks_the_engine_for_none(
    given: str | None, are_shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node fills in `${local_rank}`, inside of the container."""
    program = fake_container_engine.install(tmp_path / "bin", "podman")
    monkeypatch.setattr("jobs.engines.local.containers.count_gpus", lambda: 2)
    containers = Containers(
        tmp_path / "runs" / "1",
        ContainerRequest(image=IMAGE, shm_size=None),
        ContainerProgram(name="podman", path=str(program), environ={}),
    )
    environment = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    os.waitpid(containers.start("0", ["true"], environment), 0)
    (call,) = fake_container_engine.calls(program)
    assert ("--device=nvidia.com/gpu=all" in call["arguments"]) is are_shown


def test_an_image_that_cannot_be_fetched_is_refused_before_there_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_container_engine.install(tmp_path / "bin", "podman")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("FAKE_ENGINE_FAILS", "pull")
    engine = LocalEngine(make_environment(tmp_path))
    plan = engine.plan(make_spec(["python", "a.py"], image=IMAGE))
    with pytest.raises(EnvironmentFailure) as caught:
        engine.submit(plan, {})
    assert caught.value.message.startswith(f"podman cannot fetch {IMAGE}: ")
    assert engine.store.list() == []
