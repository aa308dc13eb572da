"""Parses JSON as people wrote it for Batch AI: strict, but for comments, trailing commas and a byte order mark.

Gives the tree of `jobs/jobfile/yaml_tree.py`, every value with its line and column. Errors quote nothing
of the text, which may be a secret.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from jobs.contracts.errors import LaunchError
from jobs.jobfile.yaml_tree import Entry, Node

MOST_DEPTH = 64
MOST_VALUES = 100_000
_BLANK = re.compile(r"[ \t\r\n]+")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\#[^\n]*", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?(?![0-9A-Za-z.+-])")
_WORD = re.compile(r"(?:true|false|null)(?![0-9A-Za-z_])")
_WORDS = {"true": True, "false": False, "null": None}
# Python converts no whole number of more digits, and nobody means one.
_LONGEST_NUMBER = 300


@dataclass(frozen=True, kw_only=True)
class ParsedJson:
    """The tree, and what was accepted although strict JSON has it not."""

    root: Node
    liberties: tuple[str, ...]


def parse_json_text(text: str, name: str) -> ParsedJson:
    """Parse one JSON value; raises LaunchError with line and column for what is none.

    Refuses a key that is given twice, more than MOST_DEPTH levels and more than MOST_VALUES values.
    """
    parser = _Parser(text, name)
    root = parser.document()
    return ParsedJson(root=root, liberties=tuple(sorted(parser.liberties)))


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self.liberties: set[str] = set()
        if text.startswith("\ufeff"):
            text = text[1:]
            self.liberties.add("a byte order mark")
        self._text, self._name = text, name
        self._at = 0
        self._num_values = 0
        self._lines = [0, *(found.end() for found in re.finditer(r"\n", text))]

    def document(self) -> Node:
        self._skip()
        root = self._value(1)
        self._skip()
        if self._at < len(self._text):
            self._fail("text stands behind the end of the document")
        return root

    def _where(self, at: int) -> str:
        line = bisect_right(self._lines, at)
        return f"{self._name}:{line}:{at - self._lines[line - 1] + 1}"

    def _fail(self, problem: str, at: int | None = None, hint: str = "") -> NoReturn:
        message = f"{self._where(self._at if at is None else at)}: {problem}"
        raise LaunchError(message, hint=hint or "correct the JSON there, and import it again")

    def _skip(self) -> None:
        while True:
            if blank := _BLANK.match(self._text, self._at):
                self._at = blank.end()
            if self._at >= len(self._text) or self._text[self._at] not in "/#":
                return
            comment = _COMMENT.match(self._text, self._at)
            if comment is None:
                self._fail("a comment has no end" if self._next("/*") else "a `/` stands alone")
            self.liberties.add("comments")
            self._at = comment.end()

    def _next(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _value(self, depth: int) -> Node:
        where = self._where(self._at)
        self._num_values += 1
        if self._num_values > MOST_VALUES:
            self._fail(f"more than {MOST_VALUES} values", hint="no job or cluster has so many")
        if self._next('"'):
            text = self._string()
            return Node(where=where, value=text, text=text)
        if self._next("{") or self._next("["):
            if depth > MOST_DEPTH:
                problem = f"more than {MOST_DEPTH} levels of nesting"
                self._fail(problem, hint="a job of Batch AI has eight at most")
            return self._entries(where, depth) if self._next("{") else self._items(where, depth)
        return self._scalar(where)

    def _scalar(self, where: str) -> Node:
        if word := _WORD.match(self._text, self._at):
            self._at = word.end()
            return Node(where=where, value=_WORDS[word[0]], text=word[0])
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            is_end = self._at >= len(self._text)
            self._fail("the document ends too early" if is_end else "here is no JSON value")
        if len(number[0]) > _LONGEST_NUMBER:
            self._fail(f"a number of more than {_LONGEST_NUMBER} digits")
        self._at = number.end()
        kind = float if number[1] or number[2] else int
        return Node(where=where, value=kind(number[0]), text=number[0])

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            self._fail("a text has no closing quote, or a character that JSON has to escape")
        self._at = found.end()
        # The pattern is JSON's own, so that this decodes escapes and cannot fail.
        return str(json.loads(found[0]))

    def _entries(self, where: str, depth: int) -> Node:
        entries: dict[str, Entry] = {}
        self._at += 1
        while not self._is_over("}", bool(entries)):
            at = self._at
            if not self._next('"'):
                self._fail("a key in double quotes has to stand here")
            key = self._string()
            if key in entries:
                first = entries[key].where.removeprefix(self._name)
                self._fail(
                    f"this key is given twice (first at {first[1:]})", at, "keep one of them"
                )
            self._skip()
            if not self._next(":"):
                self._fail("a `:` has to stand behind the key")
            self._at += 1
            self._skip()
            entries[key] = Entry(where=self._where(at), node=self._value(depth + 1))
        return Node(where=where, value=entries)

    def _items(self, where: str, depth: int) -> Node:
        items: list[Node] = []
        self._at += 1
        while not self._is_over("]", bool(items)):
            items.append(self._value(depth + 1))
        return Node(where=where, value=items)

    def _is_over(self, end: str, has_any: bool) -> bool:
        """Pass the comma before the next member, or the end of the collection; tell which it was."""
        self._skip()
        if not self._next(end):
            if not has_any:
                return False
            if not self._next(","):
                self._fail(f"a comma or `{end}` has to stand here")
            self._at += 1
            self._skip()
            if not self._next(end):
                return False
            self.liberties.add("trailing commas")
        self._at += 1
        return True


def liberties_text(names: Sequence[str]) -> str:
    """Word what was accepted although strict JSON has it not."""
    return f"accepted, though JSON has none: {', '.join(names)}"
