"""Who typed `--env FILE` is told nothing that needs a stack."""

from __future__ import annotations

import ast
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from jobs.cli import main
from jobs.contracts.errors import hint_for_file, hint_for_words
from jobs.contracts.spec import Containers, Storage
from jobs.host.environment_file import write_environment
from jobs.host.project import project_root
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.local_server import name_server

FILE = Path("my files/dev.json")
OWNERS = "for the owner of the stack: "


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("launch env check -s dev", "launch env check --env 'my files/dev.json'"),
        ("launch ls -s mlw-Yard; or later", "launch ls --env 'my files/dev.json'; or later"),
        (
            "`launch env show -s dev --refresh`",
            "`launch env show --env 'my files/dev.json' --refresh`",
        ),
        (
            "pulumi up -s dev; launch env show -s dev",
            f"{OWNERS}pulumi up -s dev; launch env show -s dev; then `launch env export` writes a "
            f"new {FILE}",
        ),
        (
            "launch env repair -s dev",
            f"{OWNERS}launch env repair -s dev; then `launch env export` writes a new {FILE}",
        ),
        ("az login", "az login"),
        ("launch env check -s STACK", "launch env check -s STACK"),
        ("-s test --cluster gpu fits", "-s test --cluster gpu fits"),
    ],
)
def test_a_hint_for_a_stack_becomes_one_for_the_file(hint, said):
    assert hint_for_file(hint, FILE) == said


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (
            "launch wait r1, or launch cancel r1",
            "launch wait -s dev r1, or launch cancel -s dev r1",
        ),
        ("`launch logs r1` shows it", "`launch logs -s dev r1` shows it"),
        ("launch exec r1 -- sh -c 'echo $PATH'", "launch exec -s dev r1 -- sh -c 'echo $PATH'"),
        ("launch show r1 -s test; launch rm r1", "launch show r1 -s test; launch rm -s dev r1"),
        ("`launch show r1 --env f`, then again", "`launch show r1 --env f`, then again"),
        ("launch run JOB; launch env check -s dev", "launch run JOB; launch env check -s dev"),
    ],
)
def test_a_hint_that_names_a_run_names_its_stack(hint, said):
    """Without it the command that is pasted looks for the run in the usual stack."""
    assert hint_for_words(hint, ["-s", "dev"]) == said
    assert hint_for_words(hint, []) == hint


def hints_with_a_stack():
    """Every text of `launch` that names a stack as an option, `X` where a value goes in."""
    found = set()
    for source in sorted((project_root() / "jobs").rglob("*.py")):
        if "-s " not in (written := source.read_text()):
            continue
        for node in ast.walk(ast.parse(written)):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    part.value if isinstance(part, ast.Constant) else "X" for part in node.values
                )
                if re.search(r"-s X", text := "".join(parts)):
                    found.add((str(source.relative_to(project_root())), text))
    return sorted(found)


@pytest.mark.parametrize(("source", "text"), hints_with_a_stack())
def test_no_text_of_launch_names_a_stack_to_who_has_a_file(source, text):
    told = hint_for_file(text, FILE)
    assert told.startswith(OWNERS) or not re.search(r"launch [^;,`]*-s X", told), source


def test_what_is_typed_with_a_file_ends_with_a_hint_for_it(tmp_path, capsys, monkeypatch):
    # The hint names pulumi as this shell finds it.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    file = tmp_path / "dev.json"
    with socket.create_server(("127.0.0.1", 0)) as store:
        storage = Storage(
            account="a",
            blob_endpoint=f"http://127.0.0.1:{store.getsockname()[1]}/a",
            containers=Containers(data="data", runs="runs"),
            folder=str(tmp_path),
        )
        name_server(tmp_path)
        write_environment(make_cloud_environment(engine="local", storage=storage), file)
        code = main(["data", "ls", "--env", str(file)])
    hint = capsys.readouterr().err.partition("hint: ")[2]
    told = f"{OWNERS}pulumi up -s dev; then `launch env export` writes a new {file}\n"
    assert (code, hint) == (1, told)
