"""Finding 11. A node, or a practitioner, may write to the store in which everybody's uploads of code lie.

He could change code that others have sent, add files to it, or register his own under the name that
theirs would get: it was run in their jobs, with their secrets.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.engines.azure_ml.node_job import environment_variables, node_command
from jobs.rank.code import LIST_FILE
from tests.fakes.azureml.ranks import lay_code
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_spec

SPEC = make_spec(["python", "train.py"], stack="dev", cluster="cpu")
SENT = {"train.py": "import part.more\nprint('trained')\n", "part/more.py": ""}
NOT_SENT = (
    "error: the code on this node differs from the sent code (hint: tell the owner of the stack)"
)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    for name, content in SENT.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return tmp_path


def start(node: Path, code: str) -> tuple[int, str]:
    """Run the job's command as Azure ML would; gives its exit code and all that it said."""
    variables = environment_variables(SPEC, make_cloud_environment(), run="a", attempt=1)
    command = node_command(SPEC, code).replace("${{outputs.trainyard_checkpoints}}", str(node))
    told = json.loads(base64.urlsafe_b64decode(variables["TRAINYARD_JOB"]))
    told["store"] = "http://127.0.0.1:1/nowhere"
    variables["TRAINYARD_JOB"] = base64.urlsafe_b64encode(json.dumps(told).encode()).decode()
    python = Path(node, "bin", "python")
    python.parent.mkdir(exist_ok=True)
    python.symlink_to(sys.executable)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=node,
        env={**variables, "PATH": f"{python.parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if "is not sent to" not in line]
    return done.returncode, "\n".join(line.split(" ", 1)[-1] for line in lines)


def test_code_as_it_was_sent_is_run(node: Path) -> None:
    assert start(node, lay_code(node)) == (0, "trained")


def change_starter(node: Path) -> None:
    with (node / ".trainyard" / "rank.pyz").open("ab") as file:
        file.write(b"#")


def change_starter_and_list(node: Path) -> None:
    (node / "train.py").write_text("print('stolen')")
    lay_code(node)


def change_list(node: Path) -> None:
    path = node / LIST_FILE
    path.write_bytes(path.read_bytes() + b" ")


@pytest.mark.parametrize("change", [change_starter, change_starter_and_list, change_list])
def test_nothing_of_it_starts_where_what_checks_it_was_changed(
    node: Path, change: Callable[[Path], None]
) -> None:
    code = lay_code(node)
    change(node)
    assert start(node, code) == (1, NOT_SENT.partition(" ")[2])


@pytest.mark.parametrize(
    ("name", "content"), [("train.py", "print('stolen')"), ("part/more.py", None)]
)
def test_a_file_that_was_changed_or_taken_away_is_named(
    node: Path, name: str, content: str | None
) -> None:
    code = lay_code(node)
    (node / name).unlink()
    if content is not None:
        (node / name).write_text(content)
    ended, said = start(node, code)
    assert (ended, "trained" in said, "stolen" in said) == (1, False, False)
    assert (
        f"the code on the node differs from the code that was sent: `{name}` is missing or has other content"
        in said
    )


def test_files_that_were_added_are_not_there_for_the_program(node: Path) -> None:
    (node / "train.py").write_text(
        "import os\nprint(sorted(name for _, _, files in os.walk('.') for name in files))"
    )
    code = lay_code(node)
    (node / "part" / "json.py").write_text("print('stolen')")
    (node / "json.py").write_text("print('stolen')")
    shape = {"links": {"x": "/etc/passwd"}, "executable": [], "folders": ["y"]}
    (node / ".trainyard" / "shape.json").write_text(json.dumps(shape))
    assert start(node, code) == (0, "['more.py', 'train.py']")


def test_the_command_needs_no_shell_to_be_what_it_is() -> None:
    words = shlex.split(node_command(SPEC, "trainyard-0"))
    assert words[:4] == ["python", "-I", "-S", "-c"]
    assert not set('"$`\\!{}') & set(words[4])
    compile(words[4], "command", "exec")
