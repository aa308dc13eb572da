r"""Finding 16: `^...$` takes a newline at the end, so that a checked name is none.

The attacker writes a job file (`name: "job\n"`, a variable `"A\n"`), and what trusts the check puts
it into a path, a header or an environment. `$` stands in no regular expression of ours unless
something behind it refuses the newline.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args

import msgspec
import pytest

from jobs.contracts import spec
from jobs.contracts.errors import LaunchError
from jobs.jobfile.read import load_job

ROOT = Path(__file__).parents[2]
FOLDERS = ("jobs", "infra", "trainer", "tools", "images")
# Where a regular expression stands in a call of `re`, of a compiled one or of msgspec's Meta.
CALLS = {"compile", "match", "search", "finditer", "findall", "sub", "subn", "split"}
GOOD = {
    "Name": "job-1",
    "VariableName": "A_1",
    "Duration": "1.5h",
    "DurationOrOff": "off",
    "MemorySize": "8g",
    "PathPart": "West Europe",
}


@pytest.mark.parametrize(("name", "good"), GOOD.items())
def test_no_type_of_the_job_file_takes_a_newline_at_its_end(name: str, good: str) -> None:
    kind = getattr(spec, name)
    assert msgspec.convert(good, kind) == good
    for bad in (f"{good}\n", f"\n{good}", f"{good}\n\n", f"{good}\n{good}"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, kind)


def test_every_type_with_a_pattern_is_looked_at() -> None:
    patterned = {
        name
        for name, kind in vars(spec).items()
        if type(kind) is type(Annotated[str, ""]) and getattr(get_args(kind)[1], "pattern", None)
    }
    # `/a\n` is a path; what begins with `/` says no more than that.
    assert patterned == {*GOOD, "AbsolutePath"}


def test_a_job_file_with_such_names_is_refused(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text('name: "job\\n"\nimage: a\ncommand: [b]\nenv: {"A\\n": 1}\n')
    with pytest.raises(LaunchError) as caught:
        load_job(str(job))
    assert caught.value.message == (
        "2 mistakes:\n"
        f"  {job}:1:7: `name` has to be a name (letters, digits, `.`, `_`, `-`; at most 63), and is "
        "the text `job\n` (for example `name: my-job`)\n"
        f"  {job}:4:7: `A\n` in `env` has to be a variable's name (letters, digits, `_`) "
        "(for example `MY_NAME: text`)"
    )


def test_no_regular_expression_ends_in_a_dollar() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "$" in (code := path.read_text(encoding="utf-8"))
        for line in open_ends(code)
    ] == []


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ('re.compile(r"^a$")', [1]),
        ('re.search(rf"^{a}$", b)', [1]),
        ('re.match("a" "$", b)', [1]),
        ('Meta(pattern=r"a$")', [1]),
        ('re.compile(r"(a$|b)")', [1]),
        ('re.compile(rb"a$")', [1]),
        ('re.compile(r"^a$", re.MULTILINE)', []),
        ('re.search(r"^a$", text, flags=re.MULTILINE)', []),
        ('re.fullmatch(r"a$", b)', []),
        ('Meta(pattern=r"a$(?!\\n)")', []),
        (r're.compile(r"a\$")', []),
        ('re.compile(r"[$]{2}")', []),
    ],
)
def test_the_gate_sees_an_open_end(code: str, lines: list[int]) -> None:
    assert open_ends(code) == lines


def open_ends(code: str) -> list[int]:
    """Lines of calls whose regular expression has a `$` that takes a newline behind it."""
    calls = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if any(_is_open(each) for each in _patterns(call))]


def _patterns(call: ast.Call) -> Iterator[str]:
    is_of_re = isinstance(call.func, ast.Attribute) and call.func.attr in CALLS
    given = call.args[:1] if is_of_re else []
    given += [each.value for each in call.keywords if each.arg == "pattern"]
    if given and "re.MULTILINE" in ast.unparse(call):
        return
    for node in given:
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        values = [each.value if isinstance(each, ast.Constant) else "x" for each in parts]
        text = [each.decode("latin-1") if isinstance(each, bytes) else each for each in values]
        yield "".join(each for each in text if isinstance(each, str))


def _is_open(pattern: str) -> bool:
    """Whether a `$` stands where the expression, or a branch of it, ends."""
    ends = [at for at, sign in enumerate(pattern) if sign == "$" and pattern[at - 1 : at] != "\\"]
    return any(pattern[at + 1 : at + 2] in ("", ")", "|") for at in ends)
