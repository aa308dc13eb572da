"""Turns a frozen dataclass into a program's command line."""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

T = TypeVar("T")

# Marks an option, behind its help text, that may differ where a training resumes from a checkpoint.
MAY_CHANGE = object()


def parse_options(
    options: type[T], argv: Sequence[str] | None = None, *, description: str = ""
) -> T:
    """Read `--kebab-case` flags, one per field, into the dataclass.

    A field is written `epochs: Annotated[int, "passes over the data"] = 12`; the text is its
    line in `--help`, and MAY_CHANGE may follow it. It may be an int, float, str, Path, bool (`--name` and `--no-name`), a
    Literal of strings, or one of these `| None`. A wrong flag, and a ValueError of the dataclass's own
    `__post_init__`, end the program with exit code 2 and one line that says what is wrong.
    """
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    hints = typing.get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(typing.cast(Any, options)):
        _add_flag(parser, field, hints[field.name])
    try:
        return options(**vars(parser.parse_args(argv)))
    except ValueError as error:
        parser.error(str(error))


def recipe_of(options: object, **facts: object) -> dict[str, object]:
    """Give the values that a checkpoint must have been made with to be resumed.

    They are all of the dataclass's options but those that it or a class that it extends marks
    MAY_CHANGE, and `facts`, such as the number of samples, which replace options of their names.
    """
    marked = {
        name
        for each in type(options).__mro__
        for name, hint in typing.get_type_hints(each, include_extras=True).items()
        if MAY_CHANGE in typing.get_args(hint)
    }
    names = [field.name for field in dataclasses.fields(typing.cast(Any, options))]
    fixed = [name for name in names if name not in marked]
    values = {name: getattr(options, name) for name in fixed}
    told = {name: str(each) if isinstance(each, Path) else each for name, each in values.items()}
    return told | facts


def _add_flag(parser: argparse.ArgumentParser, field: dataclasses.Field[Any], hint: Any) -> None:
    hint, text, *_ = typing.get_args(hint)
    kind = _without_none(hint)
    shown = text if field.default is None else f"{text} (default: {field.default})"
    # argparse fills in what follows a percent sign.
    arguments: dict[str, Any] = {"default": field.default, "help": shown.replace("%", "%%")}
    if kind is bool:
        arguments["action"] = argparse.BooleanOptionalAction
    elif typing.get_origin(kind) is Literal:
        arguments["choices"] = typing.get_args(kind)
    elif kind in (int, float, str, Path):
        arguments["type"] = kind
        arguments["metavar"] = "PATH" if kind is Path else "TEXT" if kind is str else "N"
    else:
        message = f"option {field.name} has the type {hint}, which no flag can carry"
        raise AssertionError(message)
    parser.add_argument(f"--{field.name.replace('_', '-')}", dest=field.name, **arguments)


def _without_none(hint: Any) -> Any:
    # `Literal[...] | None` is a typing.Union, `int | None` a types.UnionType.
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint
    rest = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return rest[0] if len(rest) == 1 else hint
