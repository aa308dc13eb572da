"""The documents name every key, verb and exit code, and their example works."""

import ast
import re
import subprocess

import pytest
from msgspec.structs import fields

from jobs.cli import VERBS
from jobs.contracts.errors import ExitCode
from jobs.contracts.spec import JobFile
from jobs.host.console import READER_GONE
from jobs.host.project import project_root
from jobs.runs.store import run_id

DOCS = project_root() / "docs"


def git(*arguments):
    """The lines that git answers; skips the test where this is no checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", project_root(), *arguments], capture_output=True, text=True, check=False
        )
    except OSError as error:
        pytest.skip(f"git cannot be started: {error}")
    if done.returncode not in {0, 1}:
        pytest.skip(f"no git checkout: {done.stderr.strip()}")
    return done.stdout.splitlines()


def first_cells(document, heading):
    """The words in backticks or bare in the first column of the table under a heading."""
    section = (DOCS / document).read_text().partition(heading)[2]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    rows = table[0].splitlines()[2:]
    return [row.split("|")[1].strip() for row in rows]


def test_every_key_of_a_job_file_is_documented():
    keys = [cell.strip("`") for cell in first_cells("job-file.md", "## Keys")]
    assert keys == [field.name for field in fields(JobFile)]


def test_every_verb_is_documented():
    text = (DOCS / "command-line.md").read_text()
    table = text[text.index("| verb |") :].partition("\n\n")[0].splitlines()[2:]
    named = {verb for row in table for verb in re.findall(r"`([a-z]+)[^`]*`", row.split("|")[1])}
    assert named == set(VERBS)


def test_every_exit_code_is_documented():
    codes = [int(cell) for cell in first_cells("command-line.md", "## Exit codes")]
    assert codes == [*map(int, ExitCode), READER_GONE]


def test_the_first_example_can_be_planned(launching):
    text = (DOCS / "job-file.md").read_text()
    example = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1]
    (launching.folder / "train.py").write_text("")
    job = launching.write_job(example)
    typed = launching.type("plan", job, "--set", "inputs={}", "--json")
    assert typed.code == 0, typed.err
    assert typed.json()["spec"]["command"] == ["python", "train.py", "--epochs", "3"]


def told_messages():
    """What the tables on Azure's messages quote, cut where a name, a number or the rest is meant."""
    text = (DOCS / "azure-messages.md").read_text()
    cells = [row.split("|")[1] for row in text.splitlines() if row[:1] == "|"]
    quoted = [told for cell in cells for told in re.findall(r"`([^`]+)`", cell)]
    meant = r"\b[A-Z]+\b|\d+|\.\.+|:"
    parts = [part.strip(" ,;") for told in quoted for part in re.split(meant, told)]
    return [part for part in parts if " " in part]


def said_texts():
    """Every text in the sources of `launch`, in one piece, without backticks."""
    for source in sorted((project_root() / "jobs").rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "?" for part in node.values
                ]
                yield "".join(parts).replace("`", "")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value.replace("`", "")


def test_every_message_that_the_page_on_azures_messages_explains_is_one_that_launch_says():
    said = "\n".join(said_texts())
    told = told_messages()
    assert len(told) > 50
    assert [part for part in told if part not in said] == []


def test_what_the_documents_commands_write_is_ignored_and_no_source_is():
    written = ["data/digits", "results", run_id(1_700_000_000_000_000)]
    sources = ["trainer/data", "tests/data", "jobs/results", "docs/data"]
    asked = [f"{name}/x" for name in [*written, *sources]]
    assert git("check-ignore", *asked) == [f"{name}/x" for name in written]


def test_what_is_typed_before_an_environment_is_up_needs_neither_its_workspace_nor_another_python():
    """`az ml compute list-usage` wants a workspace; `python3` is the machine's own."""
    for name in ("azure.md", "azure-state.md"):
        text = (DOCS / name).read_text()
        commands = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
        assert commands.startswith("source .venv/bin/activate ")
        assert "python3 -m" not in text
        assert "az ml compute list" not in text
