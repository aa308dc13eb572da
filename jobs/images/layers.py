"""Makes layers on this machine: a job's requirements on a runtime, once for the same content.

A layer never changes the runtime below it (jobs/rank/layer.py).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.host.cache import Report, cache_root, content_key, exclusive, run_logged
from jobs.images.package_index import find_certificates, find_settings
from jobs.images.runtimes import FINISHED, find_uv, is_finished, mark_used, uv_environment
from jobs.rank.layer import layer_command, source

PIP_LOCK = "images/pip.txt"


def layer_root(python: Path, parts: Sequence[str]) -> Path:
    """Name the folder of a layer by the runtime below and by the files of its requirements."""
    runtime = python.parent.parent
    key = content_key([str(runtime), source(), *parts])
    return cache_root(os.environ) / "layers" / f"{runtime.name}+{key}"


def build_layer(
    root: Path,
    python: Path,
    project: Path,
    *,
    folder: Path,
    requirements: str,
    environ: Mapping[str, str],
    report: Report,
) -> Path:
    """Build a layer on the runtime of `python` unless it is there; returns its folder.

    `folder` is the job's, which `requirements` lies in. Safe to kill and to call from several
    processes: the marker that makes a layer valid is written last. Raises LaunchError for a mistake
    in the file, EnvironmentFailure with the last lines of pip.
    """
    if is_finished(root):
        mark_used(root)
        return root
    with exclusive(root.with_name(f"{root.name}.lock"), what="this layer", report=report) as lock:
        if is_finished(root):
            return root
        pip = pip_folder(python, project, report=report)
        log = root.with_name(f"{root.name}.log")
        log.unlink(missing_ok=True)
        told = root.with_name(f"{root.name}.told")
        environ = {**environ, **index_settings(environ)}
        with report(f"{requirements}: installing packages over {python.parent.parent.name}"):
            try:
                with told.open("wb") as answer:
                    run_logged(
                        layer_command(str(python), str(root), requirements, str(pip)),
                        what=f"installing {requirements}",
                        log=log,
                        env=environ,
                        cwd=folder,
                        keep=[lock],
                        hint="look whether the names are right and the package index can be reached",
                        answer=answer,
                    )
            except EnvironmentFailure as error:
                shutil.rmtree(root, ignore_errors=True)
                raise _mistake(told) or error from None
            finally:
                told.unlink(missing_ok=True)
        (root / FINISHED).write_text("", encoding="utf-8")
    return root


def pip_folder(python: Path, project: Path, *, report: Report) -> Path:
    """Give the folder of the pip that layers and `setup` use, which no runtime holds; made once."""
    lock_file = project / PIP_LOCK
    if not lock_file.is_file():
        message = f"{project} has no {PIP_LOCK}, which names the pip of layers"
        raise EnvironmentFailure(message, hint=f"git -C {shlex.quote(str(project))} pull")
    key = content_key([lock_file.read_bytes()])
    root = cache_root(os.environ) / "pip" / key
    if (root / FINISHED).exists():
        return root
    with exclusive(root.with_name(f"{key}.lock"), what="pip", report=report) as lock:
        if (root / FINISHED).exists():
            return root
        uv = find_uv(project)
        shutil.rmtree(root, ignore_errors=True)
        run_logged(
            [
                *(uv, "pip", "install", "--require-hashes", "--no-deps", "--python", python),
                *("--target", root, "--requirement", lock_file),
            ],
            what="installing pip",
            log=root.with_name(f"{key}.log"),
            env=uv_environment(uv),
            keep=[lock],
            hint="look whether the package index can be reached",
        )
        (root / FINISHED).write_text("", encoding="utf-8")
    return root


def index_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Give pip the index and certificates of this machine, also where they are set for uv alone."""
    found: dict[str, str] = {}
    with contextlib.suppress(RuntimeError):  # of a user without a home
        home = Path.home()
        found = find_settings(os.environ, home)
        if (certificates := find_certificates(os.environ, home)) and "PIP_CERT" not in environ:
            found["PIP_CERT"] = str(certificates)
    return found


def _mistake(told: Path) -> LaunchError | None:
    """Read the mistake that the layer's program has found in the requirements."""
    lines = told.read_text(encoding="utf-8", errors="replace").splitlines()
    if len(lines) != 2 or not lines[0].startswith("error: "):
        return None
    return LaunchError(lines[0].removeprefix("error: "), hint=lines[1].removeprefix("hint: "))
