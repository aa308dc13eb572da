"""The library that keeps a gang's sockets on loopback, for their owner; compiled once per machine.

TensorFlow's server listens on every interface, and a script says nothing about it; torch's and
Horovod's ranks take connections of every user of the machine. loopback.c says what the library
does instead (docs/adr/0011).
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import Launcher
from jobs.host.cache import cache_root, content_key, exclusive, run_logged

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("cc", "gcc", "clang")
UNGUARDED = "other users of this machine can connect to the ranks' ports"
# TensorFlow's port runs what it is sent, on every interface: never without the library.
BOUND_TO_IT: tuple[Launcher, ...] = ("tensorflow",)
GLAD_OF_IT: tuple[Launcher, ...] = ("torch", "horovod")
# What a program sees of it: a socket bound to every interface is on loopback, and takes our own.
_TRIAL = (
    "import socket; s = socket.socket(); s.bind(('', 0)); s.listen(); "
    "assert s.getsockname()[0] == '127.0.0.1', s.getsockname(); "
    "s.settimeout(5); c = socket.create_connection(s.getsockname()); s.accept()"
)


def rank_library(
    launcher: Launcher, environ: Mapping[str, str], warn: Callable[[str], None]
) -> Path | None:
    """Give the library that a launcher's ranks are started with, or None where they have none.

    Raises EnvironmentFailure where a launcher of `BOUND_TO_IT` cannot have it; one of
    `GLAD_OF_IT` goes without, and `warn` hears why.
    """
    if launcher not in (*BOUND_TO_IT, *GLAD_OF_IT):
        return None
    try:
        return loopback_library(environ)
    except EnvironmentFailure as error:
        if launcher in BOUND_TO_IT:
            raise
        warn(f"{UNGUARDED}: {error.message}" + (f" ({error.hint})" if error.hint else ""))
        return None


def why_unguarded(launcher: Launcher, environ: Mapping[str, str]) -> str | None:
    """Say what a launcher's ranks lack on this machine, without compiling; None where nothing."""
    if launcher not in GLAD_OF_IT or _compiler(environ) or _place(environ).exists():
        return None
    return f"{UNGUARDED}: there is no C compiler (apt-get install gcc libc6-dev)"


def loopback_library(environ: Mapping[str, str]) -> Path:
    """The library's file, compiled and tried where this machine has none yet.

    Raises EnvironmentFailure where there is no C compiler, or where it does not do its work.
    """
    library = _place(environ)
    if library.exists():
        return library
    folder = library.parent
    if any(mark in str(library) for mark in " :"):
        message = f"the cache folder `{folder}` has a space or a colon in its name"
        raise EnvironmentFailure(message, hint="set XDG_CACHE_HOME to a folder without them")
    with exclusive(folder.with_suffix(".lock"), what="loopback.so", report=_silently) as lock:
        if not library.exists():
            _compile(library, environ, lock)
    return library


def preloaded(library: Path, environ: Mapping[str, str]) -> str:
    """`LD_PRELOAD` with the library before what a job preloads itself."""
    return ":".join([str(library), *filter(None, [environ.get("LD_PRELOAD")])])


def _place(environ: Mapping[str, str]) -> Path:
    machine = [platform.machine(), *platform.libc_ver()]
    key = content_key([SOURCE.read_bytes(), *machine])
    return cache_root(environ) / "loopback" / key / "loopback.so"


def _compiler(environ: Mapping[str, str]) -> str | None:
    found = (shutil.which(name, path=environ.get("PATH")) for name in COMPILERS)
    return next(filter(None, found), None)


def _compile(library: Path, environ: Mapping[str, str], lock: int) -> None:
    compiler = _compiler(environ)
    if compiler is None:
        message = "what guards the ranks' ports is compiled, and there is no C compiler"
        raise EnvironmentFailure(message, hint="apt-get install gcc libc6-dev")
    library.parent.mkdir(parents=True, exist_ok=True)
    log, fresh = library.parent / "build.log", library.with_suffix(".new")
    log.unlink(missing_ok=True)
    flags = ("-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
    run_logged(
        [compiler, *flags, "-o", fresh, SOURCE, "-ldl"],
        what="compiling loopback.c",
        log=log,
        keep=[lock],
        hint="apt-get install gcc libc6-dev",
    )
    run_logged(
        [sys.executable, "-I", "-S", "-c", _TRIAL],
        what="trying loopback.so",
        log=log,
        env={**os.environ, "LD_PRELOAD": str(fresh)},
        keep=[lock],
    )
    fresh.replace(library)


def _silently(_step: str) -> nullcontext[None]:
    return nullcontext()
