"""Jobs in a registry's image on this machine, in real containers of podman."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import RunHandle, RunState
from jobs.engines.local.containers import ContainerProgram, remove_orphans
from jobs.host.processes import read_table, read_words, supervisors_of
from jobs.images.runtimes import PROJECT
from jobs.jobfile.read import load_job
from jobs.launching.stacks import living_stacks
from tests import needs
from tests.busy import wait_until
from tests.fakes import typed_launch
from tests.fakes.gangs import Gangs, make_environment
from tests.fakes.podman import containers, podman, podman_storage

pytestmark = pytest.mark.timeout(600)
TIMEOUT_S = 300.0
# Of this run of the tests: all processes of the machine are searched for it.
SECRET = f"a-secret-of-{os.getpid()}-characters"
OWN_IMAGE = "localhost/own-image:1"
SHOW = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "TOKEN", "GREETING", "HOME", "TRAINYARD_GANG")
seen = {name: os.environ.get(name) for name in names}
seen["in_container"] = os.path.exists("/run/.containerenv")
seen["uid"] = os.getuid()
seen["python"] = sys.executable
with open(os.path.join(os.environ["TRAINYARD_RUN_DIR"], "outputs", "seen" + seen["RANK"]), "w") as file:
    json.dump(seen, file)
"""
WAIT = "import os, time; open('outputs/up-' + os.environ['RANK'], 'w').close(); time.sleep(600)"


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image with Python and nothing else, and podman first on PATH."""
    with pytest.MonkeyPatch.context() as patch, podman_storage(patch) as reference:
        yield reference


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[Gangs]:
    made = Gangs(tmp_path / "workspace", nodes=2)
    yield made
    made.end()


def log_of(run_dir: str) -> str:
    return Path(run_dir, "logs", "rank-00000.log").read_text()


HEARS = """
import os, signal, sys, time
def leave(*_):
    print("heard", len(os.environ["TOKEN"]), flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, leave)
print("container", os.path.exists("/run/.containerenv"), open("{folder}/file").read(), flush=True)
try:
    open("{folder}/new", "w")
except OSError as error:
    print(error.strerror, flush=True)
open("outputs/up", "w").close()
time.sleep(600)
"""


def test_ranks_in_containers_read_inputs_hear_the_signal_and_show_nobody_a_secret(
    image: str, gangs: Gangs
) -> None:
    folder = gangs.workspace / "inputs" / "some"
    folder.mkdir(parents=True)
    (folder / "file").write_text("content")
    program = HEARS.format(folder=folder)
    secrets = {"TOKEN": SECRET}
    handle = gangs.python(program, image=image, processes_per_node=1, secrets=secrets)
    gangs.wait_for_file(handle, "outputs/up", TIMEOUT_S)
    name = f"trainyard-{handle.id}-0"
    assert containers() == [name]
    shown = podman("image", "inspect", "--format", "{{.Id}}", image).stdout.strip()
    assert gangs.engine.store.record(handle).image_digest == f"sha256:{shown}"
    assert SECRET not in podman("inspect", name).stdout
    argvs = b"".join(word for pid in read_table() for word in read_words(pid))
    assert SECRET.encode() not in argvs
    # Those of living runs are no orphans.
    remove_orphans(ContainerProgram(name="podman", path="podman", environ={}))
    gangs.engine.cancel(handle)
    assert gangs.wait(handle, TIMEOUT_S).state is RunState.CANCELLED
    said = ["container True content", "Read-only file system", f"heard {len(SECRET)}"]
    assert gangs.texts(handle, 0) == said
    assert json.loads(Path(handle.run_dir, "ranks", "00000.json").read_text())["exit_code"] == 3
    assert containers() == []


def test_ranks_run_in_containers_with_their_variables_and_secrets(image: str, gangs: Gangs) -> None:
    handle = gangs.python(
        SHOW,
        image=image,
        secrets={"TOKEN": SECRET},
        env={"GREETING": "hello = 'you'\nand more"},
    )
    status = gangs.wait(handle, TIMEOUT_S)
    assert (status.state, status.exit_code) == (RunState.COMPLETED, 0), status
    outputs = Path(handle.run_dir, "outputs")
    assert [json.loads((outputs / f"seen{rank}").read_text()) for rank in range(2)] == [
        {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "TOKEN": SECRET,
            "GREETING": "hello = 'you'\nand more",
            "HOME": "/tmp",
            "TRAINYARD_GANG": handle.run_dir,
            "in_container": True,
            "uid": os.getuid(),
            "python": "/usr/bin/python3",
        }
        for rank in range(2)
    ]
    assert containers() == []


def wait_for_ranks(gangs: Gangs, handle: RunHandle, number: int) -> None:
    """Wait until each rank is in its WAIT."""
    for rank in range(number):
        gangs.wait_for_file(handle, f"outputs/up-{rank}", TIMEOUT_S)


def test_the_engine_keeps_no_secret_and_no_argv_has_one(image: str, gangs: Gangs) -> None:
    handle = gangs.python(WAIT, image=image, secrets={"TOKEN": SECRET})
    wait_for_ranks(gangs, handle, 2)
    names = containers()
    assert sorted(names) == [f"trainyard-{handle.id}-{rank}" for rank in range(2)]
    assert SECRET not in podman("inspect", *names).stdout
    argvs = b"".join(word for pid in read_table() for word in read_words(pid))
    assert SECRET.encode() not in argvs
    gangs.engine.cancel(handle)
    assert gangs.wait(handle, TIMEOUT_S).state is RunState.CANCELLED
    assert containers() == []


def test_a_command_and_the_stacks_beside_a_rank(image: str, gangs: Gangs) -> None:
    handle = gangs.python(WAIT, image=image, secrets={"TOKEN": SECRET})
    wait_for_ranks(gangs, handle, 2)
    program = (
        "import os; print(os.environ['RANK'], os.environ['TOKEN'], os.getcwd(), os.nice(0), "
        "os.path.exists('/run/.containerenv'))"
    )
    beside = gangs.engine.beside(handle, 1, ["python3", "-c", program])
    assert SECRET not in " ".join(beside.argv)
    said = subprocess.check_output(beside.argv, env=beside.environ, cwd=beside.folder, text=True)
    folder = f"{handle.run_dir}/nodes/0"
    assert said == f"1 {SECRET} {folder} 19 True\n"
    stacks = living_stacks(handle, gangs.engine.command_processes(handle))
    assert [(each.ranks, each.threads[0].frames[-1].line) for each in stacks.groups] == [
        ((0, 1), 1)
    ]
    gangs.engine.cancel(handle)
    assert gangs.wait(handle, TIMEOUT_S).state is RunState.CANCELLED


def test_the_exit_code_of_a_rank_is_the_runs(image: str, gangs: Gangs) -> None:
    handle = gangs.python("import sys; print('bad luck'); sys.exit(7)", image=image)
    status = gangs.wait(handle, TIMEOUT_S)
    assert (status.state, status.exit_code) == (RunState.FAILED, 7)
    assert "bad luck" in log_of(handle.run_dir)
    assert containers() == []


def test_a_cancelled_rank_hears_the_signal(image: str, gangs: Gangs) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('heard', flush=True), sys.exit(3)))\n"
        "open('outputs/up', 'w').close()\n"
        "time.sleep(600)\n"
    )
    handle = gangs.python(program, image=image, processes_per_node=1)
    gangs.wait_for_file(handle, "outputs/up", TIMEOUT_S)
    gangs.engine.cancel(handle)
    assert gangs.wait(handle, TIMEOUT_S).state is RunState.CANCELLED
    assert "heard" in log_of(handle.run_dir)
    assert containers() == []


def test_a_killed_supervisor_leaves_no_process_and_the_next_run_no_container(
    image: str, gangs: Gangs
) -> None:
    handle = gangs.python(WAIT, image=image)
    wait_for_ranks(gangs, handle, 2)
    for process in supervisors_of(Path(handle.run_dir)):
        os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not gangs.supervisors(handle), TIMEOUT_S)
    gangs.engine.cancel(handle)
    gangs.wait_until_gone(handle, TIMEOUT_S)
    assert gangs.engine.store.status(handle).state is RunState.LOST
    after = gangs.python("pass", image=image)
    assert gangs.wait(after, TIMEOUT_S).state is RunState.COMPLETED
    assert containers() == []


def test_containers_of_living_runs_are_no_orphans(image: str, gangs: Gangs) -> None:
    handle = gangs.python(WAIT, image=image, processes_per_node=1)
    wait_for_ranks(gangs, handle, 1)
    remove_orphans(ContainerProgram(name="podman", path="podman", environ={}))
    assert containers() == [f"trainyard-{handle.id}-0"]
    gangs.engine.cancel(handle)
    gangs.wait(handle, TIMEOUT_S)


def test_inputs_are_read_only_inside(image: str, gangs: Gangs) -> None:
    folder = gangs.workspace / "inputs" / "some"
    folder.mkdir(parents=True)
    (folder / "file").write_text("content")
    program = f"print(open('{folder}/file').read()); open('{folder}/new', 'w')"
    handle = gangs.python(program, image=image, processes_per_node=1)
    assert gangs.wait(handle, TIMEOUT_S).state is RunState.FAILED
    assert "content" in log_of(handle.run_dir)
    assert "Read-only file system" in log_of(handle.run_dir)


def test_an_image_that_nobody_has_is_refused_before_there_is_a_run(
    image: str, gangs: Gangs
) -> None:
    missing = f"{image.partition('/')[0]}/none/such:1"
    with pytest.raises(EnvironmentFailure) as caught:
        gangs.python("pass", image=missing)
    assert caught.value.message.startswith(f"podman cannot fetch {missing}: ")
    assert gangs.engine.store.list() == []


def test_the_example_is_built_and_run_as_its_readme_says(image: str, tmp_path: Path) -> None:
    example = PROJECT / "examples" / "own-image"
    podman(
        "build", "--quiet", f"--build-arg=BASE_IMAGE={image}", "-t", OWN_IMAGE, example / "image"
    )
    environment = tmp_path / "environment.json"
    local = make_environment(tmp_path / "workspace")
    free = msgspec.structs.replace(local.clusters["cpu"], price_per_node_hour=0.0)
    local = msgspec.structs.replace(local, clusters={"cpu": free})
    environment.write_bytes(msgspec.json.encode(local))
    planned = launch(example, "plan", "job.yaml", "--env", environment)
    assert "each rank runs in a container of podman, on this machine's network" in planned.stdout
    done = launch(example, "run", "job.yaml", "--env", environment)
    assert done.returncode == 0, done.stderr + done.stdout
    said = "[0] y = 3.000 x + 1.000"
    assert said in done.stdout.splitlines()
    assert said in (example / "README.md").read_text()
    run = tmp_path / "workspace" / "runs" / done.stdout.splitlines()[0]
    line = json.loads((run / "outputs" / "model" / "line.json").read_text())
    assert line == {"slope": 3.0, "offset": 1.0}
    shown = podman("image", "inspect", "--format", "{{.Id}}", OWN_IMAGE).stdout.strip()
    record = json.loads((run / "run.json").read_text())
    assert record["image_digest"] == f"sha256:{shown}"


def launch(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Type a command in a folder."""
    return typed_launch.launch(folder, *words)


def test_the_examples_program_ends_with_the_line_that_its_readme_states(tmp_path: Path) -> None:
    """By its job file, with the package that its image has, as the Dockerfile lays it."""
    example = PROJECT / "examples" / "own-image"
    dockerfile = (example / "image" / "Dockerfile").read_text()
    assert "COPY fitting /opt/own/fitting\nENV PYTHONPATH=/opt/own\n" in dockerfile
    environ = {"PYTHONPATH": str(example / "image"), "TRAINYARD_OUTPUT_MODEL": str(tmp_path)}
    job = load_job(str(example / "job.yaml")).job
    assert (job.image, job.script) == (OWN_IMAGE, "train.py")
    assert isinstance(job.args, dict)
    arguments = [word for key, value in job.args.items() for word in (f"--{key}", str(value))]
    done = subprocess.run(
        [sys.executable, example / "train.py", *arguments],
        env={**os.environ, **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    said = done.stdout.splitlines()[-1]
    assert said == "y = 3.000 x + 1.000"
    assert f"[0] {said}\n" in (example / "README.md").read_text()
    assert json.loads((tmp_path / "line.json").read_text()) == {"slope": 3.0, "offset": 1.0}


def site_of(version: str) -> str:
    """The folder of other packages of the image's Python: Debian's has another name."""
    if sys.base_prefix == "/usr":
        return f"/usr/local/lib/{version}/dist-packages"
    return f"{sys.base_prefix}/lib/{version}/site-packages"


def test_two_ranks_of_torch_meet_on_loopback(tmp_path: Path) -> None:
    """PyTorch is that of the runtime, lent to the image as a folder."""
    runtime = needs.runtime("pytorch")
    packages = runtime.parents[1] / "lib" / runtime.resolve().name / "site-packages"
    site = site_of(packages.parent.name)
    program = (
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.tensor([dist.get_rank() + 1])\n"
        "dist.all_reduce(total)\n"
        "print('total', total.item(), flush=True)\n"
        "listening = [line.split()[1] for line in open('/proc/net/tcp') if line.split()[3] == '0A']\n"
        "own = [each for each in listening if int(each[-4:], 16) == int(os.environ['MASTER_PORT'])]\n"
        "print('store', own, flush=True)\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        volumes = [f"{packages}:{site}:ro"]
        with podman_storage(patch, volumes=volumes) as image:
            gangs = Gangs(tmp_path / "workspace")
            handle = gangs.python(program, image=image, launcher="torch")
            status = gangs.wait(handle, TIMEOUT_S)
            assert status.state is RunState.COMPLETED, (status, log_of(handle.run_dir))
            total, store = gangs.texts(handle, 0)
            assert total == "total 3"
            assert re.fullmatch(r"store \['0100007F:[0-9A-F]{4}'\]", store)
            gangs.end()
