"""Figures as sentences write them: `minutes(120.0)` is 2, `spelled(4)` is four."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from msgspec import Struct, structs
from typer.main import get_command

from jobs.cli import module_of
from jobs.images.recipes import bases

PROJECT = Path(__file__).resolve().parents[3]
_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
)


def minutes(seconds: float) -> float:
    """Convert seconds."""
    return seconds / 60


def hours(seconds: float) -> float:
    """Convert seconds."""
    return seconds / 3600


def days(seconds: float) -> float:
    """Convert seconds."""
    return seconds / 86400


def weeks(seconds: float) -> float:
    """Convert seconds."""
    return seconds / (7 * 86400)


def kib(num_bytes: float) -> float:
    """Convert bytes."""
    return num_bytes / (1 << 10)


def mib(num_bytes: float) -> float:
    """Convert bytes."""
    return num_bytes / (1 << 20)


def gib(num_bytes: float) -> float:
    """Convert bytes."""
    return num_bytes / (1 << 30)


def gb(num_bytes: float) -> float:
    """Convert bytes."""
    return num_bytes / 10**9


def percent(share: float) -> float:
    """Convert a share of 1."""
    return round(100 * share, 9)


def spelled(number: float) -> str:
    """Write a small whole number as a word."""
    assert number == int(number)
    return _WORDS[int(number)]


def an(number: float) -> str:
    """Write one as `an` (an hour)."""
    return "an" if number == 1 else str(number)


def a(number: float) -> str:
    """Write one as `a` (a week)."""
    return "a" if number == 1 else str(number)


def default(struct: type[Struct], name: str) -> Any:
    """Give the default of a struct's field."""
    return next(each.default for each in structs.fields(struct) if each.name == name)


def bounds(struct: type[Struct], name: str) -> Any:
    """Give the `Meta` of a struct's field."""
    return get_type_hints(struct, include_extras=True)[name].__metadata__[0]


def constant(path: str, name: str, *, of: str | None = None) -> Any:
    """Read a constant, or a field's default `of` a class, where a program needs its frameworks.

    Only numbers, texts and their arithmetic are evaluated.
    """
    body = ast.parse((PROJECT / path).read_text(encoding="utf-8")).body
    if of is not None:
        body = next(
            each.body for each in body if isinstance(each, ast.ClassDef) and each.name == of
        )
    for each in body:
        for target, value in _assigned(each):
            if isinstance(target, ast.Name) and target.id == name:
                return eval(compile(ast.Expression(value), path, "eval"), {})
    message = f"{path} has no {name}"
    raise LookupError(message)


def written_in(program: str, pattern: str) -> tuple[str, ...]:
    """Read the groups of a pattern that one place of a program has, where no constant says it."""
    (found,) = re.finditer(pattern, (PROJECT / program).read_text(encoding="utf-8"))
    return found.groups()


def mode(program: str, function: str) -> str:
    """Read the mode with which a function makes files or folders."""
    source = (PROJECT / program).read_text(encoding="utf-8")
    (mode,) = {
        each.value
        for made in ast.walk(ast.parse(source))
        if isinstance(made, ast.FunctionDef) and made.name == function
        for each in ast.walk(made)
        if isinstance(each, ast.Constant)
        and isinstance(each.value, int)
        and (ast.get_source_segment(source, each) or "").startswith("0o")
    }
    return f"{mode:04o}"


def _assigned(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield statement.target, statement.value
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            yield from zip(target.elts, statement.value.elts, strict=True)
        else:
            yield target, statement.value


def typed(line: str, name: str) -> Any:
    """Give the default of a verb's option: `typed("data pack", "shard_size")`."""
    verb, *below = line.split()
    command: Any = get_command(import_module(module_of(verb)).app)
    for word in below:
        command = command.commands[word]
    return next(each.default for each in command.params if each.name == name)


def lengths(annotation: Any) -> tuple[int, int]:
    """Count the letters of the shortest and of the longest text that a type with a pattern takes."""
    return lengths_of(re.compile(annotation.__metadata__[0].pattern))


def lengths_of(pattern: re.Pattern[str]) -> tuple[int, int]:
    """Count the letters of the shortest and of the longest text that is all of a pattern."""
    taken = [number for number in range(300) if pattern.fullmatch("a" * number)]
    return taken[0], taken[-1]


def locked(image: str, package: str) -> str:
    """Give the version of a package that an image's lock has."""
    lock = (PROJECT / "images" / image / "requirements.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{package}==(\S+)", lock, re.MULTILINE)
    assert found is not None
    return found[1]


def base(image: str, name: str) -> str:
    """Give the tag of an image that an image of ours is built on, by its argument's name."""
    text = (PROJECT / "images" / image / "Dockerfile").read_text(encoding="utf-8")
    return bases(text)[name].partition("@")[0].rpartition(":")[2]


def cuda(image: str) -> str:
    """Give the version of CUDA that an image is built on; its parts build and run are of one."""
    (version,) = {base(image, f"CUDA_{part}_IMAGE").partition("-")[0] for part in ("BASE", "BUILD")}
    return version.rpartition(".")[0]


def least_python(program: str) -> str:
    """Read the version that a small program compares its own with."""
    found = re.search(r"version_info (?:<|>=) \((\d+), (\d+)\)", program)
    assert found is not None
    return ".".join(found.groups())
