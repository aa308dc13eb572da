"""Finding 15: a file that somebody hands over takes all memory, or ends `launch` with a fault.

The attacker writes a job file (404 bytes of YAML aliases took 24 s and more than 4 GB), an
environment file for `--env`, or what is pasted behind `--set`. Here each ends in one message, all of
them together in less than the second and the 200 MB that the documents grant to one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from infra.models import decode_config
from jobs.cli import main
from tests.busy import HANG_S, how_busy
from tests.fakes.gangs import make_environment

HEAD = "name: a\nimage: b\ncommand: [c]\n"
LEVELS = [f"- &{name} [{', '.join([f'*{a}'] * 9)}]" for a, name in pairwise("abcdefghi")]
# The job file, and what the message about it has to hold.
JOBS = {
    "aliases": (
        "\n".join(["x:", "- &a [z]", *LEVELS, "launcher: *i"]),
        "more than 10000 values, each alias (*name) counted in full",
    ),
    "brackets": ("[" * 200_000, "more than 64 levels of nesting"),
    "braces": (HEAD + "args: " + "{a: " * 200_000, "more than 64 levels of nesting"),
    "dashes": ("- " * 200_000, "more than 64 levels of nesting"),
    "questions": ("? " * 200_000, "a key must be a word"),
    "digits": (HEAD + f"nodes: {'9' * 5000}", "`nodes` has to be a whole number of at least 1"),
    "hex": (HEAD + f"nodes: 0x{'f' * 5000}", "`nodes` has to be a whole number of at least 1"),
    "servers": (HEAD + "launcher: tensorflow\nparameter_servers: 1000000000", "at most 1,000"),
    "duration": (HEAD + f"limits: {{hang: {'9' * 400}d}}", "`limits.hang` has to be a duration"),
    "cost": (HEAD + "limits: {cost: .inf}", "`limits.cost` has to be a number above 0"),
    "bytes": (HEAD + f"env: {{STREAM: {'9' * 5000}, TRAINYARD_X: 1}}", "is set by launch"),
    "size": ("#" * (2 << 20), "has more than 1 MB"),
    "values": (HEAD + f"args: {{a: [{'0,' * 400_000}]}}", "more than 10000 values"),
    "keys": (HEAD + "\n".join(f"k{n}: 1" for n in range(4_000)), "20 mistakes at least:"),
    "word": (HEAD + f"launcher: {'x' * 900_000}", "`launcher` has to be `horovod`"),
    "key": (HEAD + f"? {'x' * 900_000}\n: 1", "unknown key `xxx"),
    "folder": (HEAD + f"code: {'x' * 900_000}", "is not a path: File name too long"),
    "home": (HEAD + "code: ~nobody-at-all/x", "is not a path: Could not determine home directory"),
}
# Calls `launch plan` on each file; the last line tells how long all took, and the memory.
PROGRAM = """\
import contextlib, io, json, sys, time
from jobs.cli import main
asked = json.load(sys.stdin)
main(["plan", "nothing.yaml"])  # loads what every plan loads
began, said = time.process_time(), {}
for name, words in asked.items():
    with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(told):
        code = main(["plan", *words])
    said[name] = [code, told.getvalue()]
took = time.process_time() - began
# Not ru_maxrss, which counts what forked us, too.
peak_kb = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
json.dump([said, took, peak_kb], sys.stdout)
"""


def plan_all(asked: dict[str, list[str]], folder: Path) -> dict[str, tuple[int, str]]:
    """What `launch plan` said to each of many, within a second and 200 MB for all."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        cwd=folder,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    said, took_s, peak_kb = json.loads(done.stdout)
    assert took_s < how_busy()
    assert peak_kb < 200_000
    return {name: (code, text) for name, (code, text) in said.items()}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    path = tmp_path / "environment.json"
    path.write_bytes(msgspec.json.encode(make_environment(tmp_path / "workspace")))
    return path


def test_a_job_file_that_is_a_bomb_ends_in_one_message(tmp_path: Path, environment: Path) -> None:
    asked: dict[str, list[str]] = {}
    for name, (text, _) in JOBS.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        asked[name] = [f"{name}.yaml", "--env", str(environment)]
    said = plan_all(asked, tmp_path)
    assert {name: code for name, (code, _) in said.items()} == dict.fromkeys(JOBS, 2)
    wrong = {name: text for name, (_, text) in said.items() if JOBS[name][1] not in text}
    assert wrong == {}
    assert max(len(text) for _, text in said.values()) < 10_000


def test_an_override_or_an_environment_that_is_a_bomb_ends_in_one_message(
    tmp_path: Path, environment: Path
) -> None:
    (tmp_path / "job.yaml").write_text(HEAD)
    files = {
        "deep": b'{"schema":' + b"[" * 200_000,
        "deep inside": b'{"schema":1,"clusters":' + b'{"a":' * 200_000,
        "digits": b'{"schema":' + b"9" * 5000 + b"}",
        "large": b'{"schema":1,"x":"' + b"x" * (2 << 20) + b'"}',
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    asked = {name: ["job.yaml", "--env", name] for name in files}
    sets = {
        "brackets": f"args.x={'[' * 100_000}",
        "dots": f"limits{'.a' * 20_000}=1",
        "number": f"nodes={'9' * 5000}",
        "text": f"launcher={'x' * 100_000}",
    }
    for name, assignment in sets.items():
        asked[name] = ["job.yaml", "--set", assignment, "--env", str(environment)]
    asked["--nodes"] = ["job.yaml", "--nodes", "9" * 5000, "--env", str(environment)]
    asked["name"] = ["x" * 5000, "--env", str(environment)]
    said = plan_all(asked, tmp_path)
    assert {name: code for name, (code, _) in said.items()} == dict.fromkeys(asked, 2)
    assert [name for name, (_, text) in said.items() if "bug in launch" in text] == []
    assert max(len(text) for _, text in said.values()) < 20_000


def test_a_service_that_answers_with_a_bomb_is_told_in_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = b'{"x":' + b"[" * 200_000

    def reads(*_: object) -> object:
        return msgspec.json.decode(deep, type=_Known)

    monkeypatch.setattr("jobs.commands.options.open_environment", reads)
    assert main(["ls"]) == 1
    assert capsys.readouterr().err == (
        "error: a file or an answer of a service is nested too deeply\n\n"
        "hint: add --debug to see its source\n"
    )


class _Known(msgspec.Struct):
    """What is read of an answer; the rest of it is passed over."""


def test_a_setting_of_a_stack_that_is_a_bomb_stays_text() -> None:
    settings = {"trainyard:storage": "[" * 200_000, "trainyard:port": "9" * 5000}
    assert decode_config(settings) == {"storage": "[" * 200_000, "port": "9" * 5000}
