"""The preloaded library: what listens is on loopback, and all else is as the program wants it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import Launcher
from jobs.engines.local.loopback import loopback_library, preloaded, rank_library, why_unguarded

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
HEAD = "import socket; TCP, UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM\n"


def bound(library: Path, program: str, **env: str) -> str:
    """What a program under the library prints of its own sockets."""
    environ = {**os.environ, "LD_PRELOAD": str(library), **env}
    run = [sys.executable, "-c", HEAD + program]
    return subprocess.run(run, env=environ, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("program", "address"),
    [
        ("s = socket.socket(); s.bind(('0.0.0.0', 0)); s.listen()", "127.0.0.1"),
        ("s = socket.socket(); s.listen()", "127.0.0.1"),
        ("s = socket.create_server(('::', 0), family=10, dualstack_ipv6=True)", "::ffff:127.0.0.1"),
        ("s = socket.create_server(('::', 0), family=10)", "::1"),
        ("s = socket.socket(10); s.listen()", "::ffff:127.0.0.1"),
        # What a program names itself, and what does not listen, is its own matter.
        ("s = socket.socket(); s.bind(('127.0.0.2', 0)); s.listen()", "127.0.0.2"),
        ("s = socket.socket(type=UDP); s.bind(('0.0.0.0', 0))", "0.0.0.0"),
    ],
)
def test_what_listens_is_on_loopback(library: Path, program: str, address: str) -> None:
    assert bound(library, f"{program}\nprint(s.getsockname()[0])") == f"{address}\n"


@pytest.mark.parametrize("family", ["4", "6"])
def test_held_port_is_shared_with_its_program_and_with_nobody_else(
    library: Path, family: str
) -> None:
    program = """
import os, sys
port = int(os.environ["PORT"])
try:
    if os.environ["FAMILY"] == "6":
        s = socket.create_server(("::", port), family=10, dualstack_ipv6=True)
    else:
        s = socket.socket(); s.bind(("", port)); s.listen()
except OSError as error:
    sys.exit(print("in use"))
c = socket.create_connection(("127.0.0.1", port)); print("reached" if s.accept() else "")
"""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        port = str(held.getsockname()[1])
        env = {"PORT": port, "FAMILY": family}
        assert bound(library, program, TRAINYARD_HELD_PORT=port, **env) == "reached\n"
        assert bound(library, program, TRAINYARD_HELD_PORT="1", **env) == "in use\n"


def test_it_is_compiled_once(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    cache = str(library.parents[3])
    assert loopback_library({"XDG_CACHE_HOME": cache, "PATH": "/nowhere"}) == library


def test_machine_without_a_compiler_is_told_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="there is no C compiler") as caught:
        loopback_library({"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)})
    assert caught.value.hint == "apt-get install gcc libc6-dev"


NONE_HERE = (
    "other users of this machine can connect to the ranks' ports: {} "
    "(apt-get install gcc libc6-dev)"
)


@pytest.mark.parametrize("launcher", ["torch", "horovod"])
def test_launcher_that_can_do_without_goes_without_and_plan_and_run_say_so(
    tmp_path: Path, launcher: Launcher
) -> None:
    bare = {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    said: list[str] = []
    assert rank_library(launcher, bare, said.append) is None
    compiled = (
        "the library that guards the ranks' ports must be compiled, and there is no C compiler"
    )
    assert said == [NONE_HERE.format(compiled)]
    assert why_unguarded(launcher, bare) == NONE_HERE.format("there is no C compiler")


@pytest.mark.parametrize("launcher", ["none", "mpi"])
def test_launcher_whose_ranks_meet_nobody_or_by_mpirun_has_no_library(launcher: Launcher) -> None:
    bare = {"XDG_CACHE_HOME": "/nowhere", "PATH": "/nowhere"}
    assert rank_library(launcher, bare, pytest.fail) is None
    assert why_unguarded(launcher, bare) is None


def test_tensorflow_without_a_compiler_runs_and_plan_and_run_say_what_is_open(
    tmp_path: Path,
) -> None:
    bare = {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    is_open = (
        "TensorFlow's ports are open on every network interface, and anyone who connects can run code "
        "as you: {} (apt-get install gcc libc6-dev)"
    )
    said: list[str] = []
    assert rank_library("tensorflow", bare, said.append) is None
    compiled = (
        "the library that guards the ranks' ports must be compiled, and there is no C compiler"
    )
    assert said == [is_open.format(compiled)]
    assert why_unguarded("tensorflow", bare) == is_open.format("there is no C compiler")


def test_tensorflow_is_refused_where_the_library_does_not_do_its_work(tmp_path: Path) -> None:
    """Here the compiler makes something else; on some machines the kernel does not tell."""
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nwhile [ $1 != -o ]; do shift; done; echo x > $2\n")
    compiler.chmod(0o700)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(tmp_path)}
    with pytest.raises(EnvironmentFailure, match=r"trying loopback\.so"):
        rank_library("tensorflow", environ, pytest.fail)
    said: list[str] = []
    assert rank_library("torch", environ, said.append) is None
    assert "trying loopback.so" in said[0]


def test_library_that_is_there_or_can_be_made_is_nothing_to_note(library: Path) -> None:
    cache = str(library.parents[3])
    assert rank_library("torch", {"XDG_CACHE_HOME": cache, "PATH": "/"}, pytest.fail) == library
    assert why_unguarded("torch", {"XDG_CACHE_HOME": cache, "PATH": "/"}) is None
    assert why_unguarded("torch", {**os.environ, "XDG_CACHE_HOME": "/nowhere"}) is None


def test_cache_folder_that_ld_so_cannot_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="has a space or a colon"):
        loopback_library({**os.environ, "XDG_CACHE_HOME": str(tmp_path / "my cache")})


def test_what_a_job_preloads_itself_comes_after_it() -> None:
    assert preloaded(Path("/c/loopback.so"), {"LD_PRELOAD": "/x.so"}) == "/c/loopback.so:/x.so"
    assert preloaded(Path("/c/loopback.so"), {}) == "/c/loopback.so"
