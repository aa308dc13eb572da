"""No struct is learnt by two threads at once, which ends the process: msgspec's fault."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
BUILTIN = {"dict", "list", "tuple", "set", "str", "int", "float", "bool", "bytes", "object"}
KNOWN = {*BUILTIN, "Any", "None", "Raw", "msgspec", "Ellipsis"}
# Two threads meet each of many fresh structs at once.
RACE = """
import sys, threading
from typing import Any
import msgspec
from jobs.host.structs import prepared
sys.setswitchinterval(1e-6)
for number in range(400):
    inner = msgspec.defstruct("Inner", [(f"f{each}", int | None, None) for each in range(20)])
    outer = msgspec.defstruct("Outer", [(f"g{each}", inner | None, None) for each in range(20)])
    start, found = threading.Barrier(2), []
    def convert(given):
        start.wait()
        found.append(msgspec.convert({"g1": {"f1": number}}, given(outer)).g1.f1)
    threads = [threading.Thread(target=convert, args=[GIVEN]) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [number, number], found
"""


def race(given: str) -> int:
    command = [sys.executable, "-c", RACE.replace("GIVEN", given)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, check=False).returncode


def test_threads_that_meet_a_struct_first_all_read_it() -> None:
    assert race("prepared") == 0


def unprepared(source: str) -> Iterator[int]:
    """Lines that read into a type of ours without `prepared`."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        keyword = next((each.value for each in node.keywords if each.arg == "type"), None)
        if name == "msgspec.convert":
            kind = keyword or node.args[1]
        elif name in {"msgspec.json.decode", "msgspec.json.Decoder"}:
            kind = keyword or (node.args[0] if name.endswith("Decoder") and node.args else None)
        else:
            continue
        if isinstance(kind, ast.Call) and ast.unparse(kind.func) == "prepared":
            continue
        names = (
            {each.id for each in ast.walk(kind) if isinstance(each, ast.Name)} if kind else set()
        )
        if names - KNOWN:
            yield node.lineno


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("msgspec.convert(row, type=Row)", [1]),
        ("msgspec.convert(row, Row | None)", [1]),
        ("msgspec.json.decode(text, type=list[Row])", [1]),
        ("msgspec.json.Decoder(Row)", [1]),
        ("msgspec.json.Decoder(prepared(Row))", []),
        ("msgspec.convert(row, prepared(Row))", []),
        ("msgspec.json.decode(text)", []),
        ("msgspec.json.decode(text, type=dict[str, Any])", []),
    ],
)
def test_what_reads_into_a_type_of_ours_is_found(source: str, lines: list[int]) -> None:
    assert list(unprepared(source)) == lines


def test_every_struct_is_prepared_before_it_is_read() -> None:
    found = [
        f"{path.relative_to(PROJECT)}:{line}"
        for folder in ("jobs", "infra", "trainyard", "tools")
        for path in sorted((PROJECT / folder).rglob("*.py"))
        for line in unprepared(path.read_text(encoding="utf-8"))
        if path.name != "structs.py"
    ]
    assert found == []
