"""YAML as a tree of values that know where they stand, so that every error can say it.

Scalars follow YAML 1.2 (and so the editors): only `true` and `false` are booleans, `on`, `no`,
`12:30` and dates are text, `1e-3` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from jobs.contracts.errors import LaunchError

Scalar = str | int | float | bool | None

# Beyond any job; a file that is larger or deeper is a mistake or meant to do harm.
MOST_BYTES = 1 << 20
MOST_DEPTH = 64
MOST_VALUES = 10_000
# Python takes no whole number of more digits than 4,300, and shows none.
_LONGEST_NUMBER = 300
_LONGEST_SHOWN = 200
_UNGIVABLE = re.compile(r"[\0\ud800-\udfff]")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# Matches at any quote, closed or not: each character is looked at once.
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_ESCAPE = re.compile(
    r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\.", re.IGNORECASE | re.DOTALL
)
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


def parse_yaml(text: str, name: str, *, is_one_place: bool = False) -> Node:
    """Parse one document; `name` is what errors call the file.

    With `is_one_place` every value stands at `name` itself, as behind an option. Raises LaunchError
    for what is no YAML, for tags, several documents and a key given twice, and for a document
    larger or deeper than any job.
    """
    import yaml

    _check_text(text, name if is_one_place else None, name)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = _Reader(name, yaml.parse(text, Loader=loader), is_one_place).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        message = f"{where}: {error.problem or error.context}"
        line = "".join(text.split("\n")[mark.line : mark.line + 1]) if mark else ""
        at = line[mark.column : mark.column + 1] if mark else ""
        raise LaunchError(message, hint=_yaml_hint(error.problem or "", line, at)) from None
    except yaml.YAMLError as error:
        message = f"{name}: {str(error).splitlines()[0]}"
        raise LaunchError(
            message, hint="a job file is UTF-8 text without control characters"
        ) from None
    if root is None:
        message = f"{name} is empty"
        raise LaunchError(message, hint="the catalog's files are examples: launch plan digits")
    return root


def with_joined_surrogates(json: str) -> str:
    """Write the pairs of escapes that JSON has for one character as the one escape that YAML has.

    Blanks behind the string keep what follows in its place.
    """

    def joined(pair: re.Match[str]) -> str:
        if pair[1] is None:
            return pair[0]
        high, low = int(pair[1], 16), int(pair[2], 16)
        return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"

    return _JSON_STRING.sub(lambda each: _ESCAPE.sub(joined, each[0]).ljust(len(each[0])), json)


def parse_override(assignment: str, option: str | None = None) -> tuple[list[str], Node]:
    """Parse `--set KEY=VALUE`, or an option for one, to the key's path and the value."""
    key, equals, text = assignment.partition("=")
    where = brief(option or f"--set {assignment}")
    _check_text(assignment, where)
    if not equals or not key:
        message = f"`{where}` is not KEY=VALUE"
        raise LaunchError(message, hint="for example --set args.epochs=1")
    top, dot, rest = key.partition(".")
    path = [top, rest] if dot and top in _OPEN_MAPPINGS else key.split(".")
    if len(path) > MOST_DEPTH:
        raise _too_deep(where)
    if not text.startswith(("[", "{", '"', "'")):
        return path, Node(where=where, value=plain_scalar(text), text=text)
    return path, parse_yaml(text, where, is_one_place=True)


def with_override(root: Node, path: Sequence[str], value: Node) -> Node:
    """Set the value at the path, and make the mappings on the way."""
    if not path:
        return value
    entries = dict(root.value) if isinstance(root.value, dict) else {}
    key, rest = path[0], path[1:]
    old = entries.get(key)
    if rest and old is not None and isinstance(old.node.value, list):
        message = f"{value.where}: `{brief(key)}` is a list ({old.where}) and has no keys"
        raise LaunchError(message, hint=f"give the whole list: --set '{brief(key)}=[a, b]'")
    below = old.node if old else Node(where=value.where, value={})
    where = value.where if not rest or old is None else old.where
    entries[key] = Entry(where=where, node=with_override(below, rest, value))
    return Node(where=root.where, value=entries)


def located(value: Any, where: str) -> Node:
    """Make of plain data a tree that stands at one place."""
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


def brief(text: str) -> str:
    """Cut a text that is too long for a message."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def plain_scalar(text: str) -> Scalar:
    """Convert an unquoted scalar as YAML 1.2's core schema does."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL_OR_HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


class _Reader:
    """Builds the tree from YAML's events; an alias gives the node that its anchor gave.

    Reads events, not PyYAML's own nodes: building those recurses in C, once for every bracket.
    """

    def __init__(self, name: str, events: Iterator[Any], is_one_place: bool) -> None:
        self._name = name
        self._events = events
        self._is_one_place = is_one_place
        self._num_values = 0
        # With how many values each stands for; None while its end is not read.
        self._anchors: dict[str, tuple[Node, int] | None] = {}

    def document(self) -> Node | None:
        """Read the tree; None where there is nothing but comments."""
        import yaml

        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        root = self._value(next(self._events), 1)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            message = f"{self._where(after)}: another document begins"
            raise LaunchError(message, hint="a job file holds one job: remove the `---`")
        return root

    def _where(self, event: Any) -> str:
        mark = event.start_mark
        return (
            self._name if self._is_one_place else f"{self._name}:{mark.line + 1}:{mark.column + 1}"
        )

    def _value(self, event: Any, depth: int) -> Node:
        import yaml

        where = self._where(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), where)
        if event.tag is not None:
            message = f"{where}: the tag `{brief(_tag(event.tag))}` has no meaning in a job file"
            raise LaunchError(message, hint="remove it, or quote a text that begins with `!`")
        if event.anchor:
            self._anchors[event.anchor] = None
        before = self._num_values
        self._count(1, where)
        if isinstance(event, yaml.ScalarEvent):
            _check_text(event.value, where)
            value = event.value if event.style else plain_scalar(event.value)
            node = Node(where=where, value=value, text=event.value)
        elif depth > MOST_DEPTH:
            raise _too_deep(where)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = Node(where=where, value=self._items(depth))
        else:
            node = Node(where=where, value=self._entries(depth))
        if event.anchor:
            self._anchors[event.anchor] = (node, self._num_values - before)
        return node

    def _alias(self, anchor: str, where: str) -> Node:
        if anchor not in self._anchors:
            message = f"{where}: no anchor `&{brief(anchor)}` is defined before this alias"
            raise LaunchError(message, hint="quote a text that begins with `*`")
        anchored = self._anchors[anchor]
        if anchored is None:
            message = f"{where}: the value contains itself"
            raise LaunchError(message, hint="an alias (*name) cannot be inside its own anchor")
        self._count(anchored[1], where)
        return anchored[0]

    def _items(self, depth: int) -> list[Node]:
        import yaml

        items: list[Node] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items

    def _entries(self, depth: int) -> dict[str, Entry]:
        import yaml

        entries: dict[str, Entry] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                message = f"{self._where(event)}: a key must be a word"
                raise LaunchError(message, hint="write `key: value`")
            key = self._value(event, depth)
            name = event.value
            if name in entries:
                message = f"{key.where}: `{brief(name)}` is defined twice"
                raise LaunchError(
                    message, hint=f"it is first defined at {entries[name].where}; keep one"
                )
            entries[name] = Entry(where=key.where, node=self._value(next(self._events), depth + 1))
        return entries

    def _count(self, num_values: int, where: str) -> None:
        self._num_values += num_values
        if self._num_values > MOST_VALUES:
            message = f"{where}: more than {MOST_VALUES} values, each alias (*name) counted in full"
            raise LaunchError(message, hint="put long lists into a file that the program reads")


def _check_text(text: str, where: str | None, name: str = "") -> None:
    """Refuse text that no program can be given: NUL, and bytes that are not UTF-8.

    Without `where` the text is the whole file `name`, and the place in it is named.
    """
    bad = _UNGIVABLE.search(text)
    if bad is None:
        return
    if where is None:
        before = text[: bad.start()]
        where = f"{name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
    if bad[0] == "\0":
        message = f"{where}: arguments and variables cannot contain a NUL character"
        raise LaunchError(message, hint="remove it (it may be written `\\0`)")
    message = f"{where}: an invalid character: a surrogate, or a byte that is not UTF-8"
    raise LaunchError(message, hint="write it as UTF-8")


def _too_deep(where: str) -> LaunchError:
    message = f"{where}: more than {MOST_DEPTH} levels of nesting"
    return LaunchError(message, hint="no key of a job file needs more than four")


def _tag(tag: str) -> str:
    """Write a tag as in the file: YAML's own are `!!str`, not their long name."""
    return tag.replace("tag:yaml.org,2002:", "!!", 1)


def _yaml_hint(problem: str, line: str, at: str) -> str:
    """Say what to do about a problem in a line, at its character `at`."""
    if "tab" in problem or at == "\t":
        return "indent with spaces"
    if "Unicode character escape" in problem:
        return "write the character itself, as UTF-8"
    if "mapping values" in problem:
        return "quote a value that contains `: `"
    if "${" in line:
        return 'quote a placeholder that stands in brackets: `"${inputs.words}"`'
    return "close every quote and bracket; quote a text that begins with a sign"
