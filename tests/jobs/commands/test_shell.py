"""`launch shell` and `launch image path`: an image's Python by hand, from any folder."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.images.runtimes import FINISHED, PROJECT, runtime_root

START = "import sys; from jobs.cli import main; sys.exit(main())"


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime of the image pytorch in a cache of its own; its Python is ours."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    monkeypatch.setenv("TRAINYARD_RUN_DIR", "/a/run")
    monkeypatch.setenv("TRAINYARD_INPUT_DIGITS", "/an/input")
    root = runtime_root("pytorch", PROJECT)
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(sys.executable)
    (root / FINISHED).touch()
    monkeypatch.chdir(tmp_path)
    return root


def launch(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-c", START, *words]
    environ = {**os.environ, "PYTHONPATH": str(PROJECT)}
    given = {"env": environ, "capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run(argv, check=False, **given)  # pyright: ignore[reportCallIssue,reportArgumentType]


def test_command_runs_with_the_images_python_and_its_exit_code_is_passed_on(runtime: Path):
    program = (
        "import os, shutil, sys, trainer; print(shutil.which('python'), os.getcwd(), sys.argv[1:]);"
        "print([name for name in os.environ if name.startswith(('TRAINYARD_RUN', 'TRAINYARD_INPUT', 'VIRTUAL_'))]);"
        "sys.exit(7)"
    )
    done = launch("shell", "pytorch", "--", "python", "-c", program, "--epochs", "--help")
    said = [f"{runtime}/bin/python {runtime.parents[3]} ['--epochs', '--help']", "[]"]
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (said, "", 7)


def test_trainer_is_the_projects_also_where_a_folder_has_that_name(runtime: Path):
    Path("trainer").mkdir()
    Path("trainer", "__init__.py").touch()
    program = "import trainer; print(trainer.__file__)"
    done = launch("shell", "pytorch", "--", "python", "-P", "-c", program)
    assert done.stdout == f"{PROJECT}/trainer/__init__.py\n", done.stderr


def test_shell_without_a_command_keeps_the_path_that_bashrc_would_change(runtime: Path):
    Path(".bashrc").write_text("export PATH=/usr/bin:/bin FROM_BASHRC=yes\n")
    terminal, end = pty.openpty()
    os.write(terminal, b"echo $FROM_BASHRC; command -v python > found; exit 5\n")
    environ = {**os.environ, "PYTHONPATH": str(PROJECT), "SHELL": "/bin/bash"}
    options = {"env": environ, "stdin": end, "stdout": end, "stderr": end, "capture_output": False}
    done = launch("shell", "pytorch", **options)
    os.close(end)
    os.close(terminal)
    assert (Path("found").read_text(), done.returncode) == (f"{runtime}/bin/python\n", 5)


def test_unknown_command_and_image_that_is_not_installed_are_told(runtime: Path):
    done = launch("shell", "pytorch", "--", "no-such-program")
    assert done.stderr.startswith("error: cannot start `no-such-program`: No such file")
    assert done.returncode == 1
    (runtime / FINISHED).unlink()
    done = launch("shell", "pytorch")
    told = "error: image `pytorch` is not installed on this machine\n\nhint: launch image install pytorch\n"
    assert (done.stderr, done.returncode) == (told, 1)


def test_path_prints_the_interpreter_alone(runtime: Path):
    done = launch("image", "path", "pytorch")
    assert (done.stdout, done.stderr, done.returncode) == (f"{runtime}/bin/python\n", "", 0)
