"""YAML as a tree of values that know where they stand, so that every error can say it.

Scalars follow YAML 1.2 (and so the editors): only `true` and `false` are booleans, `on`, `no`,
`12:30` and dates are text, `1e-3` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from jobs.errors import LaunchError

Scalar = str | int | float | bool | None

_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf"), float("inf")),
    "-.inf": float("-inf"),
    ".nan": float("nan"),
}
# Mappings whose keys are the user's own and may hold dots: `args.a.b=1` sets the key `a.b`.
_OPEN_MAPPINGS = ("args", "env", "secrets", "tags")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A value and its place. `text` is a scalar as it was written, None for a collection."""

    where: str
    value: Scalar | list[Node] | dict[str, Entry]
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A key of a mapping: where the key stands, and its value."""

    where: str
    node: Node


def parse_yaml(text: str, name: str) -> Node:
    """Parse one document; `name` is what errors call the file.

    Raises LaunchError for what is no YAML, for several documents and for a key given twice.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        message = f"{where}: {error.problem or error.context}"
        raise LaunchError(message, hint=_yaml_hint(error.problem)) from None
    except yaml.YAMLError as error:
        message = f"{name}: {str(error).splitlines()[0]}"
        raise LaunchError(
            message, hint="a job file is UTF-8 text without control characters"
        ) from None
    if root is None:
        message = f"{name} is empty"
        raise LaunchError(message, hint="the catalog's files are examples: launch plan digits")
    return _Converter(name).convert(root)


def parse_override(assignment: str, option: str | None = None) -> tuple[list[str], Node]:
    """The key's path and the value of `--set KEY=VALUE` (or of an option that stands for one)."""
    key, equals, text = assignment.partition("=")
    where = option or f"--set {assignment}"
    if not equals or not key:
        message = f"`{where}` is no KEY=VALUE"
        raise LaunchError(message, hint="for example --set args.epochs=1")
    top, dot, rest = key.partition(".")
    path = [top, rest] if dot and top in _OPEN_MAPPINGS else key.split(".")
    if not text.startswith(("[", "{", '"', "'")):
        return path, Node(where=where, value=plain_scalar(text), text=text)
    return path, _moved(parse_yaml(text, where), where)


def with_override(root: Node, path: Sequence[str], value: Node) -> Node:
    """The tree with the value at the path, mappings made on the way."""
    if not path:
        return value
    entries = dict(root.value) if isinstance(root.value, dict) else {}
    key, rest = path[0], path[1:]
    old = entries.get(key)
    below = old.node if old else Node(where=value.where, value={})
    where = value.where if not rest or old is None else old.where
    entries[key] = Entry(where=where, node=with_override(below, rest, value))
    return Node(where=root.where, value=entries)


def located(value: Any, where: str) -> Node:
    """Plain data as a tree that stands at one place."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value)
        return Node(
            where=where,
            value={
                key: Entry(where=where, node=located(item, where)) for key, item in pairs.items()
            },
        )
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return Node(where=where, value=[located(item, where) for item in items])
    text = value if isinstance(value, str) else str(value)
    return Node(where=where, value=value, text=text)


def plain_scalar(text: str) -> Scalar:
    """What an unquoted scalar means in YAML 1.2's core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL_OR_HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


class _Converter:
    """From PyYAML's nodes to ours; an alias gives the node that its anchor gave."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done: dict[int, Node] = {}
        self.open: set[int] = set()

    def convert(self, node: Any) -> Node:
        if id(node) in self.done:
            return self.done[id(node)]
        if id(node) in self.open:
            message = f"{self.where(node)}: the value contains itself"
            raise LaunchError(message, hint="an alias (*name) cannot stand inside its own anchor")
        self.open.add(id(node))
        result = self._convert(node)
        self.open.discard(id(node))
        self.done[id(node)] = result
        return result

    def where(self, node: Any) -> str:
        mark = node.start_mark
        return f"{self.name}:{mark.line + 1}:{mark.column + 1}"

    def _convert(self, node: Any) -> Node:
        if node.id == "scalar":
            value = node.value if node.style else plain_scalar(node.value)
            return Node(where=self.where(node), value=value, text=node.value)
        if node.id == "sequence":
            return Node(where=self.where(node), value=[self.convert(item) for item in node.value])
        entries: dict[str, Entry] = {}
        for key, value in node.value:
            if key.id != "scalar":
                message = f"{self.where(key)}: a key has to be a word"
                raise LaunchError(message, hint="write `key: value`")
            if key.value in entries:
                message = f"{self.where(key)}: `{key.value}` is there already"
                raise LaunchError(message, hint=f"first at {entries[key.value].where}; keep one")
            entries[key.value] = Entry(where=self.where(key), node=self.convert(value))
        return Node(where=self.where(node), value=entries)


def _moved(node: Node, where: str) -> Node:
    value = node.value
    if isinstance(value, dict):
        value = {
            key: Entry(where=where, node=_moved(entry.node, where)) for key, entry in value.items()
        }
    elif isinstance(value, list):
        value = [_moved(item, where) for item in value]
    return Node(where=where, value=value, text=node.text)


def _yaml_hint(problem: str | None) -> str:
    if problem and "tab" in problem:
        return "indent with spaces"
    if problem and "mapping values" in problem:
        return "put quotes round a value that holds `: `"
    if problem and "another document" in problem:
        return "one job a file: remove the `---`"
    return "close every quote and bracket; put quotes round text that begins with a sign"
