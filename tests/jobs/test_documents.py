"""The documents name every key, verb and exit code, and their example works."""

import re

from msgspec.structs import fields

from jobs.cli import VERBS
from jobs.console import READER_GONE
from jobs.errors import ExitCode
from jobs.project import project_root
from jobs.spec import JobFile

DOCS = project_root() / "docs"


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
