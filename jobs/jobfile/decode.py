"""Decodes located values into frozen structs and names every mistake with its place.

Beside `msgspec.convert` it knows lines and columns, the nearest known key, and takes a number
where text is wanted, as it was written (`env: {OMP_NUM_THREADS: 4}`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import (
    Duration,
    DurationOrOff,
    JobInput,
    MemorySize,
    Name,
    VariableName,
)
from jobs.host.structs import prepared
from jobs.jobfile.yaml_tree import Entry, Node, brief

S = TypeVar("S", bound=Struct)

_WORDED: dict[Any, str] = {
    Name: "a name (letters, digits, `.`, `_`, `-`; at most 63)",
    VariableName: "a variable's name (letters, digits, `_`)",
    Duration: "a duration such as `90s`, `30m` or `12h`",
    DurationOrOff: "a duration such as `90s`, `30m` or `12h`, or `off`",
    MemorySize: "a size such as `512m` or `8g`",
    JobInput: "a dataset such as `digits@3`, a path such as `./folder`, or a mapping",
}
# What could stand there, for a hint.
_EXAMPLES: dict[Any, str] = {
    Name: "my-job",
    VariableName: "MY_NAME",
    Duration: "30m",
    DurationOrOff: "30m",
    MemorySize: "8g",
    JobInput: "digits",
    int: "2",
    float: "10",
    str: "text",
    bool: "true",
}
# So many are named at once; behind them nothing is looked at.
_MOST_PROBLEMS = 20


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A mistake: where and what it is, and how to correct it."""

    message: str
    hint: str


def decode(node: Node, kind: type[S], *, ignored: Sequence[str] = ()) -> S:
    """Decode the struct that the tree describes; top-level keys in `ignored` are passed over.

    Raises one LaunchError with every mistake.
    """
    problems: list[Problem] = []
    value = _struct(node, kind, "", problems, ignored)
    if problems:
        raise _combined(problems)
    return cast("S", value)


def describe(kind: Any) -> str:
    """Describe a type in words."""
    if kind in _WORDED:
        return _WORDED[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(describe(each) for each in arguments if each is not NoneType)
    if origin is Literal:
        return _one_of([str(each) for each in arguments])
    if origin is Annotated:
        return describe(arguments[0]) + _bounds(arguments[1])
    if origin in (list, tuple):
        return "a list"
    if origin is dict or (isinstance(kind, type) and issubclass(kind, Struct)):
        return "a mapping (`key: value`)"
    words: dict[Any, str] = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
    }
    return words[kind]


def found(node: Node) -> str:
    """Describe a node's value in words."""
    value = node.value
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{node.text}`"
    kind = "text" if isinstance(value, str) else "number"
    return f"the {kind} `{brief(node.text or '')}`"


def _struct(
    node: Node, kind: type[Struct], path: str, problems: list[Problem], ignored: Sequence[str] = ()
) -> Struct | None:
    if not isinstance(node.value, dict):
        problems.append(_wrong(node, kind, path))
        return None
    known = _fields_of(kind)
    values: dict[str, Any] = {}
    before = len(problems)
    for key, entry in node.value.items():
        if len(problems) >= _MOST_PROBLEMS:
            break
        if key in known:
            values[key] = _value(entry.node, known[key].type, f"{path}{key}", problems)
        elif key not in ignored:
            problem = _unknown(entry.where, f"{path}{key}", key, list(known))
            if not path:
                problem = _or_an_argument(problem, node.value, key)
            problems.append(problem)
    problems.extend(
        Problem(message=f"{node.where}: `{path}{name}` is missing", hint=f"add `{name}: ...`")
        for name, field in known.items()
        if field.required and name not in node.value
    )
    return kind(**values) if len(problems) == before else None


@cache
def _fields_of(kind: type[Struct]) -> Mapping[str, FieldInfo]:
    return {field.name: field for field in fields(kind)}


def _value(node: Node, kind: Any, path: str, problems: list[Problem]) -> Any:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _struct(node, kind, f"{path}.", problems)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict:
        return _mapping(node, arguments, path, problems)
    if origin in (list, tuple):
        items = _items(node, arguments[0], path, problems)
        return tuple(items) if origin is tuple else items
    if origin in (Union, UnionType) and isinstance(node.value, list):
        lists = [each for each in arguments if get_origin(each) in (list, tuple)]
        if lists:
            return _value(node, lists[0], path, problems)
    if origin in (Union, UnionType) and isinstance(node.value, dict):
        mappings = [each for each in arguments if get_origin(each) is dict]
        if mappings:
            return _value(node, mappings[0], path, problems)
    return _scalar(node, kind, path, problems)


def _mapping(
    node: Node, types: Sequence[Any], path: str, problems: list[Problem]
) -> dict[str, Any]:
    if not isinstance(node.value, dict):
        problems.append(_wrong(node, dict[types[0], types[1]], path))
        return {}
    result: dict[str, Any] = {}
    for key, entry in node.value.items():
        if len(problems) >= _MOST_PROBLEMS:
            break
        if not _fits(key, types[0]):
            message = f"{entry.where}: `{brief(key)}` in `{path}` has to be {describe(types[0])}"
            hint = f"for example `{_example(types[0])}: {_example(types[1])}`"
            problems.append(Problem(message=message, hint=hint))
        result[key] = _value(entry.node, types[1], f"{path}.{key}", problems)
    return result


def _items(node: Node, kind: Any, path: str, problems: list[Problem]) -> list[Any]:
    if not isinstance(node.value, list):
        problems.append(_wrong(node, list[kind], path))
        return []
    return [
        _value(item, kind, f"{path}[{number}]", problems)
        for number, item in enumerate(node.value)
        if len(problems) < _MOST_PROBLEMS
    ]


def _scalar(node: Node, kind: Any, path: str, problems: list[Problem]) -> Any:
    value = node.value
    if not isinstance(value, dict | list) and value is not None and not isinstance(value, str):
        # `1.10` and `007` reach a program as they were written where text will do.
        is_exact = isinstance(value, bool) or str(value) == node.text
        if _fits(node.text, kind) and (not _fits(value, kind) or not is_exact):
            return node.text
    if isinstance(value, dict | list) or not _fits(value, kind):
        problems.append(_wrong(node, kind, path))
        return None
    return msgspec.convert(value, prepared(kind))


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, prepared(kind))
    except msgspec.ValidationError:
        return False
    return True


def _wrong(node: Node, kind: Any, path: str) -> Problem:
    path = brief(path)
    name = f"`{path.rstrip('.')}`" if path else "the job"
    message = f"{node.where}: {name} has to be {describe(kind)}, and is {found(node)}"
    near = get_close_matches(brief(node.text or ""), _choices(kind), n=1) if path else []
    hint = f"did you mean `{near[0]}`?" if near else _how_to_write(node.where, path, kind)
    return Problem(message=message, hint=hint)


def _how_to_write(where: str, path: str, kind: Any) -> str:
    """Write the key with a value that would do, for the file or the option that it came from."""
    if not path:
        return "`key: value` lines; `launch schema job` prints all keys"
    path, example = path.rstrip("."), _example(kind)
    key = path.rpartition(".")[2]
    if where.startswith("--set "):
        return f"for example --set {path}={example}"
    if where.startswith("--"):
        return f"for example {where.partition(' ')[0]} {example}"
    return f"for example `- {example}`" if key.endswith("]") else f"for example `{key}: {example}`"


def _example(kind: Any) -> str:
    """Give a value of the type, as YAML on one line."""
    if kind in _EXAMPLES:
        return _EXAMPLES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict:
        return f"{{{_example(arguments[0])}: {_example(arguments[1])}}}"
    if origin in (list, tuple):
        return f"[{_example(arguments[0])}]"
    if isinstance(kind, type) and issubclass(kind, Struct):
        first = [f"{each.name}: {_example(each.type)}" for each in fields(kind)[:1]]
        return f"{{{''.join(first)}}}"
    # A literal's first word; the first of a union's types; what an annotation is about.
    return arguments[0] if origin is Literal else _example(arguments[0])


def _unknown(where: str, path: str, key: str, known: list[str]) -> Problem:
    key, path = brief(key), brief(path)
    near = get_close_matches(key.replace("-", "_"), known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
    return Problem(message=f"{where}: unknown key `{path}`", hint=hint)


def _or_an_argument(problem: Problem, job: dict[str, Entry], key: str) -> Problem:
    """Offer `args.KEY` for a `--set` of an unknown key: it may be an option of the program."""
    where, args = job[key].where, job["args"].node.value if "args" in job else {}
    if not where.startswith("--set ") or not isinstance(args, dict):
        return problem
    typed, _, value = where.removeprefix("--set ").partition("=")
    names = {name.replace("-", "_"): name for name in args}
    name = names.get(typed.replace("-", "_"))
    assignment = shlex.quote(f"args.{name or typed}={value}")
    option = f"for an option of the program: --set {assignment}"
    if name or "did you mean" not in problem.hint:
        return replace(problem, hint=option)
    return problem if "." in typed else replace(problem, hint=f"{problem.hint} {option}")


def _choices(kind: Any) -> list[str]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return [str(each) for each in arguments]
    if origin in (Union, UnionType):
        return [choice for each in arguments for choice in _choices(each)]
    return []


def _bounds(meta: Any) -> str:
    most = f" and at most {meta.le:,.0f}" if meta.le is not None else ""
    if meta.ge is not None:
        return f" of at least {meta.ge}{most}"
    if meta.gt is not None:
        return f" above {meta.gt}{most}"
    if meta.pattern is not None:
        return f" of the form {meta.pattern}"
    return ""


def _one_of(choices: list[str]) -> str:
    quoted = [f"`{choice}`" for choice in choices]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _combined(problems: list[Problem]) -> LaunchError:
    if len(problems) == 1:
        return LaunchError(problems[0].message, hint=problems[0].hint)
    lines = [f"  {problem.message} ({problem.hint})" for problem in problems]
    more = " at least" if len(problems) >= _MOST_PROBLEMS else ""
    message = "\n".join([f"{len(problems)} mistakes{more}:", *lines])
    return LaunchError(message, hint="`launch schema job` prints all keys; see docs/job-file.md")
