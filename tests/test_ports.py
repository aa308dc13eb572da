"""The tests' ports come from one place, below those of connections, and nobody gets one twice."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests import ports

TESTS = Path(__file__).parent
PICKS_ONE = """
def helper():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return port
"""
PICKS_BY_HAND = """
def helper():
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    return port
"""
KEEPS_IT = """
with socket.create_server(("127.0.0.1", 0)) as server:
    port = server.getsockname()[1]
    ask(port)
"""


def handed_on(text: str) -> list[int]:
    """Lines where a socket is opened for its number alone, or a helper by that name is made."""
    if "getsockname" not in text and "free_port" not in text:
        return []  # most files: to parse them all takes seconds
    return [node.lineno for node in ast.walk(ast.parse(text)) if _picks(node)]


def _picks(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return "free_port" in node.name or bool(
            _asked_for(node, "getsockname") & _asked_for(node, "close")
        )
    if not isinstance(node, ast.With) or not isinstance(node.items[0].optional_vars, ast.Name):
        return False
    name = node.items[0].optional_vars.id
    if any(isinstance(each, ast.Yield) for each in ast.walk(node)):
        return False
    texts = [ast.unparse(each) for each in node.body]
    return f"{name}.getsockname()" in " ".join(texts) and all(f"{name}." in each for each in texts)


def _asked_for(function: ast.FunctionDef, method: str) -> set[str]:
    """The names whose method of that name a function calls."""
    calls = (each.func for each in ast.walk(function) if isinstance(each, ast.Call))
    return {
        ast.unparse(each.value)
        for each in calls
        if isinstance(each, ast.Attribute) and each.attr == method
    }


def test_no_test_picks_a_port_by_itself() -> None:
    assert [handed_on(each) for each in (PICKS_ONE, PICKS_BY_HAND, KEEPS_IT)] == [[3], [2], []]
    found = {
        f"{path.relative_to(TESTS)}:{line}"
        for path in TESTS.rglob("*.py")
        if path.name != "ports.py"
        for line in handed_on(path.read_text(encoding="utf-8"))
    }
    assert found == set(), "take tests.ports.free_port()"


def test_ports_are_free_each_once_and_of_no_connection() -> None:
    # The first of those to come is taken, so that it has to be left out.
    first = ports.free_port()
    with socket.socket() as taken:
        with suppress(OSError):  # taken by somebody else is as good
            taken.bind(("127.0.0.1", first + 1))
        given = [first, *(ports.free_port() for _ in range(2 * ports.BLOCK))]
        assert first + 1 not in given
    assert len(set(given)) == len(given)
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if low < ports.FIRST + 64 * ports.BLOCK:
        pytest.skip(f"this machine gives connections ports from {low} on: there is no room below")
    assert all(ports.FIRST <= port < low for port in given)


def test_processes_that_live_at_once_are_given_different_ones() -> None:
    program = f"from tests import ports; print([ports.free_port() for _ in range({ports.BLOCK})])"
    others = [
        subprocess.Popen(
            [sys.executable, "-c", f"{program}; import sys; sys.stdout.flush(); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=TESTS.parent,
            text=True,
        )
        for _ in range(2)
    ]
    given = [ports.free_port()]
    for each in others:
        assert each.stdout is not None
        given += ast.literal_eval(each.stdout.readline())
    for each in others:
        each.communicate("\n")
    assert len(set(given)) == len(given) == 2 * ports.BLOCK + 1
