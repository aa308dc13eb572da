"""Finds the sentences of the documents that promise a figure, and the figures that nothing holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from typer.main import get_command

from jobs.cli import VERBS, module_of

PROJECT = Path(__file__).resolve().parents[3]
# Of policy.md each line is written from the rules (tests/infra/policy/test_rules.py compares them).
WRITTEN_BY_PROGRAMS = ("docs/policy.md",)
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
MARKS = "\x02\x03"
CODE = re.compile(f"{MARKS[0]}.*?{MARKS[1]}")
TARGET = re.compile(r"\]\([^)\s]*\)")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")

_COUNTED = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|sixteen|twenty|thirty"
    "|forty|fifty|sixty|ninety|hundred"
)
_NUMBER = rf"(?:\d[\d,]*(?:\.\d+)?|{_COUNTED})"
_TIME = r"(?:s|ms|seconds?|minutes?|min|h|hours?|days?|weeks?|months?|years?)"
_AMOUNT = r"(?:bytes|[kKMGT]i?B|characters|%|levels|values|times|tries)"
_COUNT = r"(?:\w+ )?(?:digits|letters|requests|pictures|pixels|archives)"
_BOUND = r"(?:at (?:most|least)|up to|(?:more|fewer|less|older) than|below|above|within)"
_MOST = r"(?:new|old|fast|slow|large|short|sur)est"
_SYSTEM = r"(?:Debian|Ubuntu|Python|CUDA)"
FIGURE = re.compile(
    rf"(?<![\w.@/:-])(?:{_NUMBER}[ -](?:{_TIME}|{_AMOUNT})(?![\w-])"
    # "a second" is mostly another one.
    r"|(?:an?|half an?) (?:minute|hour|day|week|month|year)(?!\w)|(?:once|within|half) a second"
    rf"|{_BOUND} (?!one\b){_NUMBER}(?![\w:/-])|{_NUMBER} (?:at most|or (?:more|newer))(?!\w)"
    rf"|\bdefault \d[\d.]*\b|{_NUMBER}(?: USD)? by default\b|\bby default {_NUMBER}(?![\w-])|\bports? \d\d+\b"
    r"|\ba (?:half|third|quarter|fifth|tenth) of (?:all|the|its)\b|\bat most half\b|\bhalf to twice\b"
    # Counts, shares and sizes; who may read a file. "The first one" and "two pictures" are no counts.
    rf"|(?!one |two ){_NUMBER} {_COUNT}(?!\w)|\b(?:first|last|newest) (?!one\b){_NUMBER}(?![\w-])"
    rf"|(?!one ){_NUMBER} {_MOST}(?!\w)|{_NUMBER} of {_NUMBER} cases|\bunder {_NUMBER} USD"
    rf"|\b(?:one in|some) {_NUMBER}(?![\w-])|{_NUMBER} x {_NUMBER}(?!\w)|0[0-7]{{3}}(?![\w.-])"
    rf"|\b{_SYSTEM} \d+(?:\.\d+)*)"
    # The cell beside an option or a key.
    rf"|(?<=\| )`[^|`]*`[^|]* \| \d[\w.-]*(?:, [\w.-]+)* (?=\|)"
)


class Promise(NamedTuple):
    """Words of a page with `{}` for each figure, and what the code makes of these."""

    words: str
    figures: tuple[str, ...]


class NoPromise(NamedTuple):
    """Figures that the code does not decide: a pattern of the words around them, and why."""

    pattern: str
    reason: str


def promise(words: str, *figures: object) -> Promise:
    """Make a row of the table; floats without a fraction are written as whole numbers."""
    if words.count("{}") != len(figures):
        message = f"`{words}` has not {len(figures)} figures"
        raise ValueError(message)
    return Promise(words, tuple(map(_written, figures)))


def option(name: str, default: object) -> Promise:
    """Make a row of a table of options: its name, and its default in the next column."""
    return promise(f"| `{name}` | {{}}", default)


@cache
def text_of(page: str) -> str:
    """Read a page or the help of a verb or a trainer as one line; MARKS stand around code."""
    if page.startswith("launch "):
        return _help_of(page.split()[1])
    if page.endswith(".py"):
        return _option_texts(PROJECT / page)
    begin, end = MARKS
    marked = FENCE.sub(rf"{begin}\g<0>{end}", (PROJECT / page).read_text(encoding="utf-8"))
    return " ".join(TARGET.sub("]", marked).split())


def pages() -> list[str]:
    """List what promises something to users: pages, and the help of each verb and program.

    Decisions (docs/adr) are of their day, and benchmarks name their machine and theirs.
    """
    patterns = (
        "README.md",
        "docs/*.md",
        "examples/*.md",
        "examples/*/README.md",
        "docs/images/*.md",
    )
    return [
        *(name for name in _found(*patterns) if name not in WRITTEN_BY_PROGRAMS),
        *(f"launch {verb} --help" for verb in VERBS),
        *(
            name
            for name in _found("trainer/**/*.py", "tools/**/*.py", "infra/*.py")
            if _option_texts(PROJECT / name)
        ),
    ]


def places_of(row: Promise, page: str) -> list[re.Match[str]]:
    """Find a row's words in a page, whatever the figures there are."""
    parts = map(re.escape, row.words.split("{}"))
    return list(re.finditer(r"(\w+(?:[.,/-]\w+)*)".join(parts), text_of(page)))


def wrong_in(row: Promise, page: str) -> str | None:
    """Tell how a page differs from a row; None if it says what holds."""
    found = [
        tuple(THOUSANDS.sub("", each) for each in place.groups()) for place in places_of(row, page)
    ]
    if not found:
        return f"{page} has no sentence `{row.words}`"
    if set(found) != {row.figures}:
        return f"{page}: `{row.words}` says {found}, but the code has {row.figures}"
    return None


def unheld_figures(
    page: str, rows: Sequence[Promise], others: Sequence[NoPromise]
) -> Iterator[str]:
    """Yield each figure of a page that no row holds and that is not listed as no promise."""
    text = text_of(page)
    # What code prints is an example.
    known = [place.span() for place in CODE.finditer(text)]
    known += [place.span() for row in rows for place in places_of(row, page)]
    known += [place.span() for each in others for place in re.finditer(each.pattern, text)]
    for figure in FIGURE.finditer(text):
        if not any(begin < figure.end() and figure.start() < end for begin, end in known):
            yield f"{page}: ...{text[max(0, figure.start() - 60) : figure.end() + 40]}..."


def _found(*patterns: str) -> list[str]:
    files = [path for pattern in patterns for path in PROJECT.glob(pattern)]
    return sorted(path.relative_to(PROJECT).as_posix() for path in files)


def _written(figure: object) -> str:
    if isinstance(figure, float) and figure.is_integer():
        figure = int(figure)
    return str(figure)


def _help_of(verb: str) -> str:
    command = get_command(import_module(module_of(verb)).app)
    return " ".join(" ".join(_helps(command)).split())


def _helps(command: Any) -> Iterator[str]:
    yield command.help or ""
    for parameter in command.params:
        yield " ".join((*parameter.opts, getattr(parameter, "help", None) or ""))
        if getattr(parameter, "show_default", False) and parameter.default not in (None, False, ()):
            yield f"(default: {parameter.default})"
    for below in getattr(command, "commands", {}).values():
        yield from _helps(below)


def _option_texts(program: Path) -> str:
    """Join the texts of a program's options: most need a framework, so that none is imported.

    They stand in `Annotated[int, "text"]` or in `help="text"` of a parser.
    """
    told: list[ast.expr] = []
    for each in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
        match each:
            case ast.Subscript(value=ast.Name("Annotated"), slice=ast.Tuple(parts)):
                told += parts
            case ast.keyword("help" | "description", text):
                told.append(text)
    return "; ".join(
        each.value
        for each in told
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )
