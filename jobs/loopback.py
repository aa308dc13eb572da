"""The library that keeps a gang's listening sockets on loopback, compiled once per machine.

TensorFlow's server listens on every interface, and a script says nothing about it. loopback.c says
what the library does instead (docs/adr/0011).
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from jobs.build_cache import cache_root, content_key, exclusive, run_logged
from jobs.errors import EnvironmentFailure

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("cc", "gcc", "clang")
# What a program sees of it: a socket bound to every interface is on loopback.
_TRIAL = (
    "import socket; s = socket.socket(); s.bind(('', 0)); s.listen(); "
    "assert s.getsockname()[0] == '127.0.0.1', s.getsockname()"
)


def loopback_library(environ: Mapping[str, str]) -> Path:
    """The library's file, compiled and tried where this machine has none yet.

    Raises EnvironmentFailure where there is no C compiler, or where it does not do its work.
    """
    machine = [platform.machine(), *platform.libc_ver()]
    folder = cache_root(environ) / "loopback" / content_key([SOURCE.read_bytes(), *machine])
    library = folder / "loopback.so"
    if library.exists():
        return library
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


def _compile(library: Path, environ: Mapping[str, str], lock: int) -> None:
    found = (shutil.which(name, path=environ.get("PATH")) for name in COMPILERS)
    compiler = next(filter(None, found), None)
    if compiler is None:
        message = "the launcher `tensorflow` compiles a small library, and there is no C compiler"
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
