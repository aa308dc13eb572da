"""Reads command lines as a shell would, without running any: quotes, words, an `mpirun` around a program."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobs.rank.placeholders import PLACEHOLDER

_WORD = re.compile(r"(?:[^\s\"'\\;|&<>()`]|\\.|\"(?:[^\"\\]|\\.)*\"|'[^']*'|\$\([^)]*\)|`[^`]*`)+")
_OPERATOR = re.compile(r"[;|&<>()\n]")
_UNGIVABLE = re.compile(r"[\0\ud800-\udfff]")
# Linux takes no argument of more than 128 KiB, and three of these may be in one.
LONGEST = 30_000
MPI_PROGRAMS = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun")
_STARTS_MPI = re.compile(r"(?:^|[\s;|&(/])(?:mpirun|mpiexec(?:\.hydra)?|orterun)(?=\s)")
# Options of mpirun with the number of words behind each. Their work is `launch`'s own.
_COUNTS = ("-n", "-np", "--np", "-c", "--n")
_PER_NODE = ("-ppn", "-perhost", "-npernode", "--npernode", "-N")
_WORDS_BEHIND = {
    **dict.fromkeys(("-mca", "--mca", "-gmca", "--gmca"), 2),
    **dict.fromkeys(
        ("-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f", "-hosts"), 1
    ),
    **dict.fromkeys(("-host", "--host", "-H", "-bind-to", "--bind-to", "-map-by", "--map-by"), 1),
    **dict.fromkeys(("-rmk", "-iface", "-launcher", "-bootstrap"), 1),
    **dict.fromkeys(("--allow-run-as-root", "-allow-run-as-root", "--oversubscribe"), 0),
    **dict.fromkeys(
        ("-oversubscribe", "--bynode", "--byslot", "-bynode", "-byslot", "-genvall"), 0
    ),
    **dict.fromkeys(("-envall", "--tag-output", "-tag-output", "-v", "-l"), 0),
}
# Their values are variables, or a folder, that the program is meant to see.
_SEEN_BY_PROGRAM = ("-x", "-genv", "-env", "-genvlist", "-envlist", "-wdir", "--wdir")


def objection(text: str) -> str | None:
    """Say why a text cannot be given to a shell; None where it can."""
    if len(text) > LONGEST:
        return f"it has more than {LONGEST} characters, too many for a command line"
    if _UNGIVABLE.search(text):
        return "it holds a NUL or half of a character, which no command can be given"
    if _quote_at(text, len(text)):
        return "a quote in it has no end"
    return None


def _quote_at(text: str, end: int) -> str:
    """Tell which quote is open before a place: one of `'`, `"`, or none."""
    quote, at = "", 0
    while at < end:
        mark = text[at]
        if mark == "\\" and quote != "'":
            at += 1
        elif mark == quote:
            quote = ""
        elif not quote and mark in "'\"":
            quote = mark
        at += 1
    return quote


def with_variable(text: str, start: int, end: int, variable: str) -> str:
    """Put a variable of the shell in a part's place, whatever quotes it stands in."""
    quote = _quote_at(text, start)
    put = {"": f'"${{{variable}}}"', '"': f"${{{variable}}}", "'": f"'\"${{{variable}}}\"'"}[quote]
    return text[:start] + put + text[end:]


def literal(text: str) -> str:
    """Write a text so that no placeholder of a job file is seen in it."""
    return PLACEHOLDER.sub(lambda found: f"${found[0]}", text)


def double_quoted(text: str) -> str:
    """Quote a text for a shell so that its variables are filled in, and nothing is executed."""
    escaped = re.sub(r'["\\`]|\$(?![A-Za-z_{])', r"\\\g<0>", text)
    return f'"{escaped}"'


def _first_operator(text: str) -> int:
    at = 0
    while found := _OPERATOR.search(text, at):
        if not _quote_at(text, found.start()) and text[found.start() - 1 : found.start()] != "\\":
            return found.start()
        at = found.end()
    return len(text)


def starts_mpi(text: str) -> bool:
    """Tell whether a command line starts MPI processes by itself."""
    return _STARTS_MPI.search(text) is not None


@dataclass(frozen=True, kw_only=True)
class Unwrapped:
    """The program that an `mpirun` starts, and in how many processes."""

    program: str
    processes: int | None
    per_node: int | None


def unwrap_mpi(text: str) -> Unwrapped | str:
    """Take `mpirun` and its options off a command line; a text says why that cannot be done."""
    stripped = text.strip()
    if _first_operator(stripped) < len(stripped):
        return "the `mpirun` in it is one of several commands"
    found = [(each[0], each.start()) for each in _WORD.finditer(stripped)]
    if not found or found[0][0].rpartition("/")[2] not in MPI_PROGRAMS:
        return "something stands before the `mpirun` in it"
    counts: dict[bool, int] = {}
    number = 1
    while number < len(found) and found[number][0].startswith("-"):
        option, value = (
            found[number][0],
            "".join(each for each, _ in found[number + 1 : number + 2]),
        )
        if option in _SEEN_BY_PROGRAM:
            return f"`mpirun {option}` in it sets what the program sees"
        if option in _COUNTS or option in _PER_NODE:
            if not re.fullmatch(r"0*[1-9][0-9]{0,4}", value):
                return f"the number behind `mpirun {option}` in it is known only when it runs"
            counts[option in _COUNTS] = int(value)
        elif option not in _WORDS_BEHIND:
            return "an option of the `mpirun` in it is unknown"
        number += 1 + _WORDS_BEHIND.get(option, 1)
    if number >= len(found):
        return "the `mpirun` in it starts nothing"
    program = stripped[found[number][1] :]
    return Unwrapped(program=program, processes=counts.get(True), per_node=counts.get(False))
