"""Finds command lines of one program in a script or a text, as a shell would read them, without running any.

Prompts, bullets, comments, continuations, quotes, variables that lines above set, and here-documents are
understood. An expansion whose value only a run would know marks its word as unknown.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from jobs.contracts.errors import LaunchError

PROGRAM = ("az", "batchai")
MOST_LINES = 10_000
# A quote that is open for longer was never meant as one.
_LONGEST_QUOTE = 1 << 17
_MOST_NESTED = 8
_PROMPT = re.compile(
    r"[ \t]*(?:(?:[-*+]|[0-9]+[.)])[ \t]+)?(?:(?:PS [^>\n]{0,200}>|[^\s\"'=#;|&]{0,200}[$>%])[ \t]+|![ \t]*)?"
)
_ASSIGNS = re.compile(
    r"(?:(?:export|declare|local|readonly|typeset)[ \t]+(?:-\w+[ \t]+)*)?[A-Za-z_]\w*="
)
_NAMED = re.compile(r"\baz(?:\.cmd|\.exe)?[ \t]+batchai\b")
_STARTS = re.compile(rf"(?:[^\s\"'=]*/)?{_NAMED.pattern}")
_TEMPLATE = re.compile(r"<[A-Za-z][A-Za-z0-9 _.'/-]{0,80}>")
_EXPANSION = re.compile(r"\$(?:\{(?P<braced>[^}\n]*)\}|(?P<plain>[A-Za-z_]\w*)|[0-9@*#?$!-])")
_DEFAULT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?::?[-=](?P<default>[^$`]*))?\Z")
_WINDOWS = re.compile(r"%[A-Za-z_]\w*%")
_KEYWORDS = ("then", "do", "else", "if", "while", "until", "!", "time", "sudo", "exec", "{", "call")
_EXPORTS = ("export", "declare", "local", "readonly", "typeset")
_SET = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)\Z", re.DOTALL)
_CONTINUES = re.compile(r"(?:\\|(?<=\s)[\^`])[ \t]*\r?\n(?:[ \t]*>[ \t]+)?")
# Set by the service on its nodes: a text that names them is meant for there.
_OF_SERVICE = "AZ_BATCHAI_"


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word of a command line after quotes and known variables; `is_unknown` where a run alone would know it."""

    text: str
    where: str
    line: int
    is_unknown: bool = False
    is_quoted: bool = False

    @property
    def is_option(self) -> bool:
        """Tell whether it is written as an option."""
        return not self.is_quoted and len(self.text) > 1 and self.text.startswith("-")


@dataclass(frozen=True, kw_only=True)
class HereDocument:
    """The text behind `<<`, the line on which it begins, and the file that it is written into."""

    text: str
    line: int
    target: str | None


@dataclass(kw_only=True)
class ShellScript:
    """Command lines of the program, variables by their last values, and here-documents."""

    commands: list[list[Word]] = field(default_factory=list[list[Word]])
    variables: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    documents: list[HereDocument] = field(default_factory=list[HereDocument])


class _OpenQuote(Exception):
    """A quote without an end; the place where it begins."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def has_command_line(text: str) -> bool:
    """Tell whether a text has a command line of the program, and does not just name it."""
    return any(_begins_command(line) for line in text.split("\n") if "batchai" in line)


def _begins_command(line: str) -> bool:
    if line.lstrip().startswith("#"):
        return False
    found = _NAMED.search(line)
    return (
        found is not None
        and re.search(r"\s-{1,2}[A-Za-z]|\\\s*\Z", line[found.end() :]) is not None
    )


def read_script(text: str, name: str) -> ShellScript:
    """Read a script or a text; raises LaunchError for a command line whose quote has no end."""
    return _Reader(text, name, 1).read()


class _Reader:
    """Reads line by line; only lines that matter are read as a shell's."""

    def __init__(
        self,
        text: str,
        name: str,
        line: int,
        *,
        variables: dict[str, str | None] | None = None,
        depth: int = 0,
    ) -> None:
        self._text = text.removeprefix("\ufeff")
        self._name, self._first_line, self._depth = name, line, depth
        self._ends = [found.start() for found in re.finditer("\n", self._text)]
        self._at = 0
        self.script = ShellScript(variables={} if variables is None else variables)
        self._waiting: list[tuple[str, bool, bool]] = []
        self._targets: list[str] = []

    def read(self) -> ShellScript:
        """Read the whole text."""
        num_read = 0
        while self._at < len(self._text):
            begin = self._at
            end = self._text.find("\n", begin)
            end = len(self._text) if end < 0 else end
            line = self._text[begin:end]
            prompt = _PROMPT.match(line)
            offset = prompt.end() if prompt else 0
            matters = _ASSIGNS.match(line, offset) or _NAMED.search(line) or "<<" in line
            if not matters or line.lstrip().startswith("#"):
                self._at = end + 1
                continue
            num_read += 1
            if num_read > MOST_LINES:
                message = f"{self._name}: more than {MOST_LINES} lines of commands"
                raise LaunchError(
                    message, hint="give the lines that create jobs and clusters alone"
                )
            self._at = begin + offset
            try:
                self._line()
            except _OpenQuote as open_quote:
                if _STARTS.match(line, offset):
                    where = self._where(open_quote.at)
                    message = f"{where}: a quote has no end"
                    raise LaunchError(message, hint="close it, and import it again") from None
                self._waiting.clear()
                self._at = end + 1
        return self.script

    def _line_of(self, at: int) -> int:
        return self._first_line + bisect_left(self._ends, at)

    def _where(self, at: int) -> str:
        line = self._line_of(at)
        return f"{self._name}:{line}:{at - self._text.rfind(chr(10), 0, at)}"

    def _line(self) -> None:
        """Read commands up to the end of the line, and the here-documents that follow it."""
        words: list[Word] = []
        while self._at < len(self._text):
            mark = self._text[self._at]
            if continued := _CONTINUES.match(self._text, self._at):
                self._at = continued.end()
            elif mark in " \t\r":
                self._at += 1
            elif mark == "#":
                self._skip_comment()
            elif mark in "\n;|&()":
                self._finish(words)
                words = []
                self._at += 1
                if mark == "\n":
                    break
            elif mark in "<>" and not _TEMPLATE.match(self._text, self._at):
                self._redirect()
            elif mark.isdigit() and re.match(r"[0-9][<>]", self._text[self._at : self._at + 2]):
                self._at += 1
            else:
                words.append(self._word())
        self._finish(words)
        self._here_documents()

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _redirect(self) -> None:
        rest = self._text[self._at : self._at + 3]
        if rest.startswith("<<") and rest != "<<<":
            is_indented = rest == "<<-"
            self._at += 3 if is_indented else 2
            raw = re.compile(r"[ \t]*([^\s;|&<>()]+)").match(self._text, self._at)
            if raw is None:
                return
            self._at = raw.end()
            delimiter = re.sub(r"[\"'\\]", "", raw[1])
            self._waiting.append((delimiter, is_indented, delimiter == raw[1]))
            return
        is_output = rest[0] == ">"
        self._at += next(
            len(each) for each in ("<<<", ">>", ">|", "<", ">") if rest.startswith(each)
        )
        self._at += self._text.startswith("&", self._at)
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        if self._at < len(self._text) and self._text[self._at] not in "\n;|&()<>":
            word = self._word()
            if is_output and not word.is_unknown:
                self._targets.append(word.text)

    def _word(self) -> Word:
        begin = self._at
        parts: list[str] = []
        is_unknown = is_quoted = False
        while self._at < len(self._text):
            mark = self._text[self._at]
            if mark in " \t\r\n;|&()" or _CONTINUES.match(self._text, self._at):
                break
            if mark in "<>":
                template = _TEMPLATE.match(self._text, self._at)
                if template is None:
                    break
                self._at = template.end()
                parts.append(template[0])
                continue
            text, unknown = self._part(mark)
            is_quoted = is_quoted or mark in "\"'"
            is_unknown = is_unknown or unknown
            parts.append(text)
        text = "".join(parts)
        is_unknown = is_unknown or _WINDOWS.search(text) is not None
        return Word(
            text=text,
            where=self._where(begin),
            line=self._line_of(begin),
            is_unknown=is_unknown,
            is_quoted=is_quoted,
        )

    def _part(self, mark: str) -> tuple[str, bool]:
        """Read a quoted part, an expansion or one plain character, and tell whether it is unknown."""
        if mark == "'":
            end = self._text.find("'", self._at + 1, self._at + _LONGEST_QUOTE)
            if end < 0:
                raise _OpenQuote(self._at)
            text, self._at = self._text[self._at + 1 : end], end + 1
            return text, False
        if mark == '"':
            return self._double_quoted()
        if mark == "\\":
            self._at += 2
            return self._text[self._at - 1 : self._at], False
        if mark in "$`":
            return self._expansion()
        self._at += 1
        return mark, False

    def _double_quoted(self) -> tuple[str, bool]:
        begin, is_unknown = self._at, False
        parts: list[str] = []
        self._at += 1
        while self._at < len(self._text) and self._at - begin < _LONGEST_QUOTE:
            mark = self._text[self._at]
            if mark == '"':
                self._at += 1
                return "".join(parts), is_unknown
            if mark == "\\":
                after = self._text[self._at + 1 : self._at + 2]
                parts.append(after if after in '"\\$`' else "" if after == "\n" else f"\\{after}")
                self._at += 2
            elif mark in "$`":
                text, unknown = self._expansion()
                is_unknown = is_unknown or unknown
                parts.append(text)
            else:
                self._at += 1
                parts.append(mark)
        raise _OpenQuote(begin)

    def _expansion(self) -> tuple[str, bool]:
        """Read a variable, or a command whose output a run alone would know."""
        begin = self._at
        if self._text.startswith("$(", begin) or self._text[begin] == "`":
            end = self._end_of_command(begin)
            is_old = self._text[begin] == "`"
            self._inner(begin + (1 if is_old else 2), end)
            self._at = end + 1
            return self._text[begin : self._at], True
        found = _EXPANSION.match(self._text, begin)
        if found is None:
            self._at += 1
            return "$", False
        self._at = found.end()
        return self._value_of(found)

    def _value_of(self, found: re.Match[str]) -> tuple[str, bool]:
        named = _DEFAULT.match(found["braced"] or found["plain"] or "")
        name = named["name"] if named else ""
        value = self.script.variables.get(name)
        if value is None and named and named["default"] is not None:
            value = named["default"]
        if value is not None:
            return value, False
        return found[0], not name.startswith(_OF_SERVICE)

    def _end_of_command(self, begin: int) -> int:
        if self._text[begin] == "`":
            end = self._text.find("`", begin + 1, begin + _LONGEST_QUOTE)
            if end < 0:
                raise _OpenQuote(begin)
            return end
        level, at = 1, begin + 2
        while at < len(self._text) and at - begin < _LONGEST_QUOTE:
            level += {"(": 1, ")": -1}.get(self._text[at], 0)
            if not level:
                return at
            at += 1
        raise _OpenQuote(begin)

    def _inner(self, begin: int, end: int) -> None:
        """Find command lines in a command whose output is taken."""
        if self._depth >= _MOST_NESTED or not _NAMED.search(self._text, begin, end):
            return
        inside = _Reader(
            self._text[begin:end],
            self._name,
            self._line_of(begin),
            variables=dict(self.script.variables),
            depth=self._depth + 1,
        )
        self.script.commands += inside.read().commands

    def _finish(self, words: list[Word]) -> None:
        """Note the variables that a command sets, and the command if it is the program's."""
        rest = list(words)
        while rest and (rest[0].text in _KEYWORDS or rest[0].text.endswith(("$", ">"))):
            rest = rest[1:]
        if rest and rest[0].text in _EXPORTS:
            rest = rest[1:]
            while rest and rest[0].is_option:
                rest = rest[1:]
        while rest and (found := _SET.match(rest[0].text)):
            self.script.variables[found["name"]] = None if rest[0].is_unknown else found["value"]
            rest = rest[1:]
        names = tuple(each.text for each in rest[:2])
        program = (
            names[0].rpartition("/")[2].removesuffix(".cmd").removesuffix(".exe") if names else ""
        )
        if (program, *names[1:]) == PROGRAM:
            self.script.commands.append(rest[2:])
        elif rest and rest[0].text == "tee":
            self._targets += [each.text for each in rest[1:] if not each.is_option]

    def _here_documents(self) -> None:
        targets, self._targets = self._targets, []
        waiting, self._waiting = self._waiting, []
        for number, (delimiter, is_indented, is_expanded) in enumerate(waiting):
            begin = self._at
            lines = list(self._lines_to(delimiter, is_indented))
            text = "\n".join(lines)
            if is_expanded:
                text = re.sub(
                    r"\\([$`\\])|" + _EXPANSION.pattern,
                    lambda found: found[1] or self._value_of(found)[0],
                    text,
                )
            target = targets[number] if number < len(targets) else None
            self.script.documents.append(
                HereDocument(text=text, line=self._line_of(begin), target=target)
            )

    def _lines_to(self, delimiter: str, is_indented: bool) -> Iterator[str]:
        while self._at < len(self._text):
            end = self._text.find("\n", self._at)
            end = len(self._text) if end < 0 else end
            line = self._text[self._at : end].removesuffix("\r")
            self._at = end + 1
            if is_indented:
                line = line.lstrip("\t")
            if line == delimiter:
                return
            yield line
