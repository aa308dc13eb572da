"""Packages that jobs bring, on this machine: made once for a content, whole or absent, never in the image."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import RunState
from jobs.engines.local.layers import layer_folder, make_layer
from jobs.host.private import open_lock, try_lock
from jobs.images.layers import build_layer, layer_root
from jobs.images.runtimes import PROJECT, find_uv
from jobs.jobfile.read import decode_job
from jobs.jobfile.requirements import fingerprint
from jobs.launching.plan import plan_on
from jobs.launching.rerun import differences, recorded_job
from tests.busy import POLL_S, Bound
from tests.fakes.gangs import Gangs, make_spec
from tests.fakes.wheels import make_wheel, requirement

OURS = Path(sys.executable)
OFFLINE = "--no-index\n--find-links wheels\n"
SAYS = "import sys\nprint(*(__import__(each).SAYS for each in sys.argv[1:]))\n"
# Says so when it has begun, in a process that is killed from outside.
BUILDER = """
import signal, sys
from contextlib import nullcontext
from pathlib import Path
from jobs.images.layers import build_layer
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # as `launch` does
root, python, project, folder = map(Path, sys.argv[1:5])
build_layer(root, python, project, folder=folder, requirements="slow.txt", environ={"PATH": "/usr/bin:/bin"},
            report=lambda title: nullcontext())
"""


class Code:
    """The folder of a job, whose package no other test has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = f"package{secrets.token_hex(6)}"
        self.roots: set[Path] = set()
        folder.mkdir()
        self.write("1.0", "SAYS = 'one'")

    def write(self, version: str, text: str, *requires: str) -> Path:
        wheel = make_wheel(self.folder / "wheels", self.package, version, text, *requires)
        (self.folder / "needed.txt").write_text(f"{OFFLINE}{self.package}\n", encoding="utf-8")
        return wheel

    def root(self, python: Path = OURS) -> Path:
        """The folder of the layer, which is removed in the end."""
        root = layer_root(python, fingerprint(self.folder, "needed.txt"))
        self.roots.add(root)
        return root


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Code]:
    made = Code(tmp_path / "code")
    made.root()
    yield made
    made.root()
    for each in made.roots:
        for left in each.parent.glob(f"{each.name}*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[Gangs]:
    made = Gangs(tmp_path / "work space")
    yield made
    made.end()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The Python of an image with the TensorFlow of CPUs, and with a program of that package."""
    folder = tmp_path / "image"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "tensorflow.py").write_text("SAYS = 'the image'\n", encoding="utf-8")
    information = packages / "tensorflow_cpu-2.18.1.dist-info"
    information.mkdir()
    metadata = "Metadata-Version: 2.1\nName: tensorflow_cpu\nVersion: 2.18.1\n"
    (information / "METADATA").write_text(metadata, encoding="utf-8")
    (information / "RECORD").write_text("../../../bin/says,,\n", encoding="utf-8")
    python, says = folder / "bin" / "python", folder / "bin" / "says"
    says.write_text(f"#!{python}\n{SAYS}", encoding="utf-8")
    says.chmod(0o700)
    return python


@pytest.fixture
def image_gangs(tmp_path: Path, image: Path) -> Iterator[Gangs]:
    made = Gangs(tmp_path / "work space", interpreter=image)
    yield made
    made.end()


def tree(folder: Path) -> set[str]:
    """Folders of an environment, those of pip's records among them; not what imports leave."""
    found = {str(path) for path in folder.rglob("*") if path.is_dir()}
    return {path for path in found if not path.endswith("/__pycache__")}


def test_second_run_takes_the_layer_and_other_content_makes_another(code: Code, capsys):
    spec = make_spec(["true"], code=str(code.folder), requirements="needed.txt")
    first = make_layer(spec, OURS)
    assert "needed.txt: installing packages" in capsys.readouterr().err
    made = Path(str(first)).parents[1]
    assert make_layer(spec, OURS) == first
    assert (capsys.readouterr().err, made) == ("", code.root())
    code.write("1.1", "SAYS = 'two'")
    assert code.root() != made
    shutil.rmtree(made)


def test_rerun_makes_the_layer_again_from_the_runs_own_copy(code: Code, gangs: Gangs):
    program = f"import {code.package}; print({code.package}.SAYS)"
    spec = {"code": str(code.folder), "requirements": "needed.txt"}
    first = gangs.python(program, **spec)
    assert gangs.wait(first).state is RunState.COMPLETED
    shutil.rmtree(code.root())
    record = gangs.engine.store.record(first)
    kept = code.folder.rename(code.folder.with_name("elsewhere"))
    recorded = recorded_job(record, Path(first.run_dir), gangs.engine)
    plan = plan_on(decode_job(recorded.tree), recorded.code, gangs.engine)
    again = gangs.engine.submit(plan, {})
    gangs.handles.append(again)
    assert gangs.wait(again).state is RunState.COMPLETED
    assert gangs.texts(again, 0) == ["one"]
    assert gangs.engine.store.record(again).image_digest == record.image_digest
    kept.rename(code.folder)


@pytest.mark.parametrize("changed", [False, True])
def test_hashes_are_held_against_what_is_installed(code: Code, *, changed: bool):
    line = requirement(code.write("1.0", "SAYS = 'one'"))
    wheel = code.write("1.0", "SAYS = 'other'" if changed else "SAYS = 'one'")
    assert (requirement(wheel) != line) is changed
    (code.folder / "needed.txt").write_text(OFFLINE + line, encoding="utf-8")
    spec = make_spec(["true"], code=str(code.folder), requirements="needed.txt")
    if not changed:
        assert make_layer(spec, OURS) == str(code.root() / "bin" / "python")
        return
    with pytest.raises(LaunchError) as caught:
        make_layer(spec, OURS)
    told = f"needed.txt: `{code.package}==1.0` is not the file that its hash names"
    assert caught.value.message == told


@contextmanager
def half_made(code: Code, folder: Path) -> Generator[subprocess.Popen[bytes]]:
    """A builder, in a session of its own, whose pip asks for a package."""
    (code.folder / "slow.txt").write_text(f"{code.package}\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # an index that never answers
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        environ = {**os.environ, "PIP_INDEX_URL": index, "PIP_CONFIG_FILE": os.devnull}
        environ["PYTHONPATH"] = str(PROJECT)
        words = [str(each) for each in (code.root(), OURS, PROJECT, code.folder)]
        argv = [sys.executable, "-c", BUILDER, *words]
        builder = subprocess.Popen(argv, env=environ, start_new_session=True, cwd=folder)
        connection, _ = silent.accept()  # pip asks for the package: the layer is half made
        with connection:
            yield builder


def test_builder_that_is_killed_leaves_no_layer_and_the_next_one_builds_it(code: Code, tmp_path):
    with half_made(code, tmp_path) as builder:
        os.killpg(builder.pid, signal.SIGKILL)
        builder.wait()
    assert (code.root() / "bin" / "python").exists()
    assert not (code.root() / ".finished").exists()
    spec = make_spec(["true"], code=str(code.folder), requirements="needed.txt")
    assert make_layer(spec, OURS) == str(code.root() / "bin" / "python")
    assert (code.root() / ".finished").exists()


def test_pip_that_outlives_its_builder_keeps_the_layers_lock(code: Code, tmp_path):
    with half_made(code, tmp_path) as builder:
        lock = open_lock(code.root().with_name(f"{code.root().name}.lock"))
        builder.terminate()
        assert builder.wait() == 128 + signal.SIGTERM
        is_kept = not try_lock(lock, without_locks=True)
        os.killpg(builder.pid, signal.SIGKILL)
    bound = Bound(60)
    while not try_lock(lock, without_locks=True):
        bound.check()
        time.sleep(POLL_S)
    os.close(lock)
    assert is_kept


def test_two_launches_at_once_make_one_layer(code: Code):
    begun: list[str] = []
    argv = [
        *(sys.executable, "-c", BUILDER.replace("slow.txt", "needed.txt")),
        *(str(each) for each in (code.root(), OURS, PROJECT, code.folder)),
    ]
    environ = {**os.environ, "PYTHONPATH": str(PROJECT)}
    both = [subprocess.Popen(argv, env=environ) for _ in range(2)]
    assert [each.wait(timeout=300) for each in both] == [0, 0]
    build_layer(
        *(code.root(), OURS, PROJECT),
        folder=code.folder,
        requirements="needed.txt",
        environ={},
        report=lambda title: nullcontext(begun.append(title)),
    )
    log = code.root().with_name(f"{code.root().name}.log").read_text(encoding="utf-8")
    assert (log.count("Successfully installed"), begun) == (1, [])


def test_package_that_is_not_to_be_had_is_told_in_pips_words(code: Code):
    (code.folder / "needed.txt").write_text("--no-index\nno-such-package\n", encoding="utf-8")
    with pytest.raises(EnvironmentFailure) as caught:
        make_layer(make_spec(["true"], code=str(code.folder), requirements="needed.txt"), OURS)
    first, command, *said = caught.value.message.splitlines()
    log = code.root().with_name(f"{code.root().name}.log")
    assert first == f"installing needed.txt failed (exit code 1); the end of {log}:"
    assert command.startswith(f"  | + {OURS} -I {PROJECT}/jobs/rank/layer.py ")
    assert said[-1] == "  | ERROR: No matching distribution found for no-such-package"


def test_what_horovod_is_linked_against_is_not_replaced(code: Code, torch_gangs: Gangs):
    code.write("1.0", "SAYS = 'one'", "torch<2")
    python = torch_gangs.runtime("pytorch")
    before = tree(python.parents[1])
    with pytest.raises(LaunchError) as caught:
        torch_gangs.python(
            "print(1)", image="pytorch", code=str(code.folder), requirements="needed.txt"
        )
    told = caught.value.message
    assert not code.root(python).exists()
    assert told.startswith(
        f"needed.txt asks for `{code.package} 1.0 depends on torch<2`, and the image has `torch=="
    )
    assert tree(python.parents[1]) == before
    assert torch_gangs.engine.store.list() == []


def test_layer_and_setup_leave_the_runtime_as_it_is(code: Code, torch_gangs: Gangs):
    code.write("1.0", "SAYS = 'one'", "torch")
    make_wheel(code.folder / "more", "fromsetup", "1.0", "SAYS = 'two'")
    python = torch_gangs.runtime("pytorch")
    before = tree(python.parents[1])
    handle = torch_gangs.python(
        f"import torch, {code.package}, fromsetup; print(torch.__file__, {code.package}.SAYS, fromsetup.SAYS)",
        image="pytorch",
        code=str(code.folder),
        requirements="needed.txt",
        setup=("pip install -q --no-index --find-links more fromsetup", "command -v pip"),
    )
    assert torch_gangs.wait(handle).state is RunState.COMPLETED, torch_gangs.error(handle)
    (torch,) = python.parents[1].glob("lib/python3*/site-packages/torch/__init__.py")
    pip = f"{handle.run_dir}/nodes/0.layer/bin/pip"
    said = torch_gangs.texts(handle, 0) + torch_gangs.texts(handle, 1)
    assert sorted(said) == sorted([pip, f"{torch} one two", f"{torch} one two"])
    assert tree(python.parents[1]) == before
    record = torch_gangs.engine.store.record(handle)
    root = code.root(python)
    assert layer_folder(record.plan.spec, python) == root
    assert record.image_digest == root.name
    assert differences(record, Path(handle.run_dir), torch_gangs.engine) == []


def test_setup_installs_by_pip_and_uv_where_the_workspace_has_a_blank(code: Code, gangs: Gangs):
    options = "install -q --no-index --find-links wheels"
    make_wheel(code.folder / "wheels", "fromuv", "1.0", "SAYS = 'two'")
    uv = shlex.quote(str(find_uv(PROJECT)))
    handle = gangs.python(
        f"import {code.package}, fromuv; print({code.package}.SAYS, fromuv.SAYS)",
        code=str(code.folder),
        processes_per_node=1,
        setup=(f"pip {options} {code.package}", f"{uv} pip {options} fromuv"),
    )
    assert gangs.wait(handle).state is RunState.COMPLETED, gangs.error(handle)
    assert gangs.texts(handle, 0)[-1] == "one two"


def test_program_of_the_image_sees_the_packages_of_the_job(code: Code, image_gangs: Gangs):
    make_wheel(code.folder / "wheels", "fromsetup", "1.0", "SAYS = 'two'")
    code.root(image_gangs.runtime(""))
    handle = image_gangs.submit(
        ["says", "tensorflow", code.package, "fromsetup"],
        code=str(code.folder),
        requirements="needed.txt",
        processes_per_node=1,
        setup=("pip install -q --no-index --find-links wheels fromsetup",),
    )
    assert image_gangs.wait(handle).state is RunState.COMPLETED, image_gangs.error(handle)
    assert image_gangs.texts(handle, 0) == ["the image one two"]


def test_image_keeps_its_tensorflow_by_either_name(code: Code, image_gangs: Gangs):
    make_wheel(code.folder / "wheels", "tensorflow", "2.20", "SAYS = 'the newest'")
    make_wheel(code.folder / "wheels", "tensorflow", "2.18.1", "SAYS = 'another build'")
    code.write("1.0", "SAYS = 'one'", "tensorflow[and-cuda]", "tensorflow-cpu")
    code.root(image_gangs.runtime(""))
    options = "install -q --no-index --find-links wheels"
    uv = shlex.quote(str(find_uv(PROJECT)))
    handle = image_gangs.submit(
        ["says", "tensorflow", code.package],
        code=str(code.folder),
        requirements="needed.txt",
        processes_per_node=1,
        setup=(f"pip {options} tensorflow", f"{uv} pip {options} tensorflow"),
    )
    assert image_gangs.wait(handle).state is RunState.COMPLETED, image_gangs.error(handle)
    assert image_gangs.texts(handle, 0)[-1] == "the image one"


def test_another_version_of_tensorflow_is_refused_by_either_name(code: Code, image: Path):
    make_wheel(code.folder / "wheels", "tensorflow", "2.20", "SAYS = 'the newest'")
    (code.folder / "needed.txt").write_text(f"{OFFLINE}tensorflow>=2.19\n", encoding="utf-8")
    code.root(image)
    spec = make_spec(["true"], code=str(code.folder), requirements="needed.txt")
    with pytest.raises(LaunchError) as caught:
        make_layer(spec, image)
    told = "needed.txt asks for `tensorflow>=2.19`, and the image has `tensorflow==2.18.1`"
    assert caught.value.message == told


def test_setup_installs_from_an_index_that_is_a_secret_and_no_log_has_it(code: Code, gangs: Gangs):
    index = code.folder.with_name("index-of-a-password")
    wheel = make_wheel(code.folder.with_name("wheels"), code.package, "2.0", "SAYS = 'two'")
    (index / code.package).mkdir(parents=True)
    page = f'<a href="{wheel.as_uri()}">{wheel.name}</a>'
    (index / code.package / "index.html").write_text(page, encoding="utf-8")
    handle = gangs.python(
        f"import {code.package}; print({code.package}.SAYS)",
        secrets={"PIP_INDEX_URL": index.as_uri()},
        processes_per_node=1,
        setup=(f"pip install {code.package}",),
    )
    assert gangs.wait(handle).state is RunState.COMPLETED, gangs.error(handle)
    texts = gangs.texts(handle, 0)
    assert texts[-1] == "two"
    assert index.name not in "\n".join(texts)
