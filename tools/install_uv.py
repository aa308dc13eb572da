"""Finds uv, or installs it into a folder of its own, and lays the locked environment with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.cache import exclusive, run_logged
from jobs.images.runtimes import uv_environment
from tools.phases import Phases
from tools.project import Project

LOCK = "images/uv.txt"
OLDEST = (0, 9)


def ensure_uv(project: Project, phases: Phases) -> Path:
    """Find uv on PATH where it is new enough, else install one into .trainyard/uv."""
    with phases.phase("uv") as phase:
        own = project.state / "uv" / "bin" / "uv"
        for candidate in (shutil.which("uv"), str(own)):
            version = uv_version(candidate)
            if candidate and version >= OLDEST:
                phase.note(f"{'.'.join(map(str, version))} at {candidate}")
                return Path(candidate)
        with exclusive(project.state / "uv.lock", what="uv", report=phases.phase):
            if uv_version(str(own)) < OLDEST:  # else another set-up has installed it meanwhile
                install_uv(project)
        phase.note(f"installed as pinned in {LOCK} into .trainyard/uv")
    return own


def uv_version(uv: str | None) -> tuple[int, ...]:
    """Ask a uv program for its version; () when it is none."""
    if uv is None or not Path(uv).exists():
        return ()
    answer = subprocess.run(
        [uv, "--version"], capture_output=True, encoding="utf-8", check=False
    ).stdout
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", answer)
    return tuple(map(int, match.groups())) if match else ()


def install_uv(project: Project) -> None:
    """Install with this Python's pip, or with that of a throw-away environment where it has none.

    uv installs all the rest, so what comes must have one of the lock's hashes.
    """
    log = project.log("uv")
    folder, partial = project.state / "uv", project.state / "uv.partial"
    throwaway = project.state / "uv.installer"
    python = sys.executable
    if subprocess.run(
        [python, "-m", "pip", "--version"], capture_output=True, check=False
    ).returncode:
        run_logged(
            [python, "-m", "venv", "--clear", throwaway],
            what="making an environment to install uv with",
            log=log,
            hint="apt-get install python3-venv (or install uv yourself)",
        )
        python = str(throwaway / "bin" / "python")
    shutil.rmtree(partial, ignore_errors=True)
    pinned = ["--require-hashes", "--only-binary=:all:", "-r", project.root / LOCK]
    run_logged(
        [python, "-m", "pip", "install", "--quiet", "--target", partial, *pinned],
        what="installing uv",
        log=log,
        hint="is the package index within reach? pip's own settings are used",
    )
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    shutil.rmtree(throwaway, ignore_errors=True)


def sync_environment(project: Project, uv: Path, phases: Phases) -> None:
    """Install the packages of uv.lock into .venv."""
    unfinished = project.state / "sync.unfinished"
    with (
        phases.phase("Python packages of uv.lock") as phase,
        exclusive(project.state / "sync.lock", what="the environment", report=phases.phase) as lock,
    ):
        # uv takes a package whose metadata is there for installed, even if a kill kept its other
        # files from being written.
        if unfinished.exists():
            shutil.rmtree(project.venv, ignore_errors=True)
            phase.note("laid anew, the last try was cut short")
        unfinished.write_text("", encoding="utf-8")
        command: list[str | Path] = [uv, "sync", "--locked", "--extra", "ui"]
        if not project.python.exists():
            command += ["--python", sys.executable]
        temporary = project.state / "tmp"  # uv never removes the lock that it takes in it
        temporary.mkdir(exist_ok=True)
        environment = {
            "UV_PROJECT_ENVIRONMENT": str(project.venv),
            "TMPDIR": str(temporary),
        }
        run_logged(
            command,
            what="uv sync",
            log=project.log("uv-sync"),
            env={**uv_environment(uv), **environment},
            cwd=project.root,
            keep=[lock],
            hint="is the package index within reach, and the disk not full? then try again",
        )
        offer_uv(project, uv)
        unfinished.unlink()


def offer_uv(project: Project, uv: Path) -> None:
    """Let `uv run` work in an activated environment where PATH has no uv."""
    link = project.venv / "bin" / "uv"
    if not uv.is_relative_to(project.state):
        link.unlink(missing_ok=True)
    elif not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(uv, link.parent))


def require_python(version: tuple[int, int]) -> None:
    if not (3, 11) <= version < (3, 13):
        message = f"Python {version[0]}.{version[1]} runs this set-up; 3.11 or 3.12 is needed"
        raise EnvironmentFailure(message, hint="make setup PYTHON=python3.12")
