"""Runs a program under strace: its calls between two marks, and a fault at any one of them.

A mark is `access("/trainyard-mark-begin")` and `access("/trainyard-mark-end")`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.busy import HANG_S

# Line of strace: `name(arguments) = result`.
LINE = re.compile(r"(\w+)\((.*)\)\s+= (.*)")
BEGIN, END = "/trainyard-mark-begin", "/trainyard-mark-end"


@dataclass(frozen=True, kw_only=True)
class Call:
    """A system call: the `number`th of its name in the whole program, counted from 1."""

    name: str
    number: int
    arguments: str


def require_strace(folder: Path) -> None:
    """Skip the test where no program can be traced."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    tried = ["strace", "-o", folder / "log", "true"]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")


def calls_between_marks(command: Sequence[str | Path], log: Path) -> list[Call]:
    """Run the program whole; gives its calls on files."""
    trace = ["strace", "-qq", "-y", "-s", "0", "-e", "trace=%file,%desc", "-o", log]
    subprocess.run([*trace, *command], check=True, capture_output=True)  # as with a fault
    counts: Counter[str] = Counter()
    calls: list[Call] = []
    is_between = False
    for line in log.read_text().splitlines():
        found = LINE.fullmatch(line)
        if found is None:
            continue
        name, arguments, _ = found.groups()
        counts[name] += 1
        if BEGIN in arguments or END in arguments:
            is_between = BEGIN in arguments
        elif is_between:
            calls.append(Call(name=name, number=counts[name], arguments=arguments))
    return calls


def ends_of_rows(calls: Sequence[Call]) -> list[Call]:
    """Choose the first and the last of calls of one name in a row."""
    names = ["", *(call.name for call in calls), ""]
    return [
        call
        for number, call in enumerate(calls, 1)
        if not names[number - 1] == names[number] == names[number + 1]
    ]


def run_with_fault(
    command: Sequence[str | Path], call: Call, fault: str
) -> subprocess.CompletedProcess[str]:
    """Run the program with `signal=KILL`, `error=EIO` ... injected where it makes the call."""
    inject = ["-e", f"trace={call.name}", "-e", f"inject={call.name}:{fault}:when={call.number}"]
    return subprocess.run(
        ["strace", "-qq", "-o", os.devnull, *inject, *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
