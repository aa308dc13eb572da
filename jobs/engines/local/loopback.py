"""Compiles, once per machine, the library that keeps a gang's sockets on loopback, for their owner.

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
INSTALL_COMPILER = "apt-get install gcc libc6-dev"
_BY_USERS = "other users of this machine can connect to the ranks' ports"
# The launchers whose ranks have the library, and what may happen to them without it.
UNGUARDED: dict[Launcher, str] = {
    "torch": _BY_USERS,
    "horovod": _BY_USERS,
    "tensorflow": (
        "TensorFlow's ports are open on every network interface, and anyone who connects can run "
        "code as you"
    ),
}
# What a program sees of it: a socket bound to every interface is on loopback, and takes our own.
_TRIAL = (
    "import socket; s = socket.socket(); s.bind(('', 0)); s.listen(); "
    "assert s.getsockname()[0] == '127.0.0.1', s.getsockname(); "
    "s.settimeout(5); c = socket.create_connection(s.getsockname()); s.accept()"
)


class NoCompiler(EnvironmentFailure):
    """A machine without a C compiler."""


def rank_library(
    launcher: Launcher, environ: Mapping[str, str], warn: Callable[[str], None]
) -> Path | None:
    """Give the library that a launcher's ranks are started with; None for ranks without one.

    `warn` is told why ranks that should have it go without. TensorFlow's do so only if there is no
    compiler: raises EnvironmentFailure if the library was compiled, and cannot do its work.
    """
    if launcher not in UNGUARDED:
        return None
    try:
        return loopback_library(environ)
    except EnvironmentFailure as error:
        if launcher == "tensorflow" and not isinstance(error, NoCompiler):
            raise
        hint = f" ({error.hint})" if error.hint else ""
        warn(f"{UNGUARDED[launcher]}: {error.message}{hint}")
        return None


def why_unguarded(launcher: Launcher, environ: Mapping[str, str]) -> str | None:
    """Warn of a launcher's open ports on a machine without a compiler; None if there are none.

    Compiles nothing.
    """
    if launcher not in UNGUARDED or _compiler(environ) or _place(environ).exists():
        return None
    return f"{UNGUARDED[launcher]}: there is no C compiler ({INSTALL_COMPILER})"


def loopback_library(environ: Mapping[str, str]) -> Path:
    """Give the library's file, compiled and tried if this machine has none yet.

    Raises NoCompiler, and EnvironmentFailure if the library cannot do its work.
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
    """Put the library before what a job preloads itself, as `LD_PRELOAD` names them."""
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
        message = (
            "the library that guards the ranks' ports must be compiled, and there is no C compiler"
        )
        raise NoCompiler(message, hint=INSTALL_COMPILER)
    library.parent.mkdir(parents=True, exist_ok=True)
    log, fresh = library.parent / "build.log", library.with_suffix(".new")
    log.unlink(missing_ok=True)
    flags = ("-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
    run_logged(
        [compiler, *flags, "-o", fresh, SOURCE, "-ldl"],
        what="compiling loopback.c",
        log=log,
        keep=[lock],
        hint=INSTALL_COMPILER,
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
