"""A job's `args` as the words of a command line, and back again (pure)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from jobs.contracts.errors import LaunchError
from jobs.jobfile.yaml_tree import brief

Argument = bool | int | float | str | list[int | float | str] | None

_NEGATIVE_NUMBER = re.compile(r"-(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def to_argv(args: Mapping[str, Argument] | Sequence[int | float | str]) -> tuple[str, ...]:
    """Turn `{epochs: 3, amp: true, size: [8, 16]}` into `--epochs 3 --amp --size 8 16`.

    Words in a list stay as they are. What is false, null or an empty list is left out. A value that
    begins with a dash and is no number is joined to its key, so that no parser takes it for an option.
    """
    if not isinstance(args, Mapping):
        return tuple(map(str, args))
    words: list[str] = []
    for key, value in args.items():
        if value is None or value is False or value == []:
            continue
        if value is True:
            words.append(f"--{key}")
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)]
        elif _looks_like_an_option(str(value)):
            words.append(f"--{key}={value}")
        else:
            words += [f"--{key}", str(value)]
    return tuple(words)


def split_argv(argv: Sequence[str]) -> tuple[tuple[str, ...], dict[str, Argument]]:
    """Part a command's own words from the args that `to_argv` put behind them.

    Words that `to_argv` would not have written so are left to the command.
    """
    for start in range(1, len(argv)):
        args = _parse(argv[start:]) if argv[start].startswith("--") else None
        if args is not None:
            return tuple(argv[:start]), args
    return tuple(argv), {}


def require_all_words(
    found: Mapping[str, Argument], args: Mapping[str, Argument] | Sequence[int | float | str]
) -> None:
    """Refuse a value of `args` that drops words which `split_argv` found behind its option.

    They may be positional: a command line does not say what an option takes. A list says all the
    words behind an option, and an empty one drops both.
    """
    if not isinstance(args, Mapping):
        return
    for key, before in found.items():
        value = args.get(key, before)
        if isinstance(value, list):
            continue
        words = _words_behind(before)
        is_bare = value is None or isinstance(value, bool)
        if dropped := words if is_bare else words[1:]:
            raise _dropping(key, value, dropped)


def python_program(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Give the words that start a Python program, `python -m MODULE` or `python SCRIPT`; None for others."""
    count = 3 if tuple(argv[1:2]) == ("-m",) else 2
    is_program = argv[0] == "python" and len(argv) >= count and not argv[count - 1].startswith("-")
    return tuple(argv[:count]) if is_program else None


def _parse(words: Sequence[str]) -> dict[str, Argument] | None:
    args: dict[str, Argument] = {}
    position = 0
    while position < len(words):
        key, equals, joined = words[position].removeprefix("--").partition("=")
        position += 1
        values: list[int | float | str] = []
        while position < len(words) and not words[position].startswith("--"):
            values.append(words[position])
            position += 1
        if not key or key in args or (equals and values):
            return None
        single = values[0] if len(values) == 1 else values
        args[key] = joined if equals else single if values else True
    return args if to_argv(args) == tuple(words) else None


def _looks_like_an_option(value: str) -> bool:
    return value.startswith("-") and not _NEGATIVE_NUMBER.fullmatch(value)


def _words_behind(value: Argument) -> list[str]:
    """List the words that stand apart from their option, as positional ones do."""
    if isinstance(value, list):
        return list(map(str, value))
    is_apart = isinstance(value, str) and not _looks_like_an_option(value)
    return [str(value)] if is_apart else []


def _dropping(key: str, value: Argument, dropped: Sequence[str]) -> LaunchError:
    typed = value if isinstance(value, str) else json.dumps(value)
    told = brief(shlex.join(dropped))
    message = f"`--set args.{key}={typed}` drops `{told}`, which may be no value of `--{key}`"
    if value is None or isinstance(value, bool):
        without = "" if value else f"--set 'args.{key}=[]' drops the option and its words; "
        return LaunchError(message, hint=f"{without}--set 'args=[WORD, ...]' gives all words anew")
    kept, alone = (
        shlex.quote(f"args.{key}={json.dumps([typed, *more], ensure_ascii=False)}")
        for more in (dropped, ())
    )
    return LaunchError(message, hint=f"--set {kept} keeps it, --set {alone} does not")
