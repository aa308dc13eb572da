"""The parser of `launch`: argparse with our errors, our help, and commands under commands."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser, HelpFormatter, Namespace
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from jobs.contracts.errors import LaunchError

# What a command does, with its arguments by their names; gives the exit code, None for success.
Act = Callable[..., int | None]

MAX_WIDTH = 100
_WORDING = (
    ("usage: ", "Usage: "),
    ("\npositional arguments:\n", "\nArguments:\n"),
    ("\noptions:\n", "\nOptions:\n"),
    ("show this help message and exit\n", "Show this message.\n"),
)


class CommandParser(ArgumentParser):
    """A command with its options, or one that has commands under it.

    Raises LaunchError for a mistake in what was typed. An option is not abbreviated: a new option
    would change what a script means.
    """

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog, description=description, formatter_class=_formatter, allow_abbrev=False
        )
        self.commands: dict[str, CommandParser] = {}
        self._listed: dict[str, str] = {}
        # For argcomplete; parse_line goes its own way.
        self._nested: Any = None

    def list_command(self, name: str, text: str) -> None:
        """A command for the help alone; to make a parser for each would double the help's time."""
        self.usage = f"{self.prog} [-h] COMMAND ..."
        self._listed[name] = text

    def add_command(self, name: str, text: str, act: Act | None = None) -> CommandParser:
        """A command under this one; `text` is its line in the help, `act` what it does."""
        self.list_command(name, text)
        if self._nested is None:
            self._nested = self.add_subparsers(
                prog=self.prog, help=SUPPRESS, required=False, parser_class=CommandParser
            )
        command: CommandParser = self._nested.add_parser(name, help=text, description=text)
        if act is not None:
            command.set_defaults(act=act)
        self.commands[name] = command
        return command

    def parse_line(self, words: Sequence[str]) -> Namespace:
        """What was typed, by the innermost command that was named.

        Not by argparse's own descent, which takes `diff A --json B` for one run too many.
        """
        if not self._listed:
            arguments, surplus = self.parse_known_intermixed_args(words)
            if surplus:
                raise self._surplus(surplus[0])
            return arguments
        at = next((n for n, word in enumerate(words) if not word.startswith("-")), len(words))
        arguments, surplus = self.parse_known_args(words[:at])
        if surplus:
            raise self._surplus(surplus[0])
        if at == len(words):
            return arguments
        if words[at] not in self.commands:
            raise self._unknown(words[at])
        return self.commands[words[at]].parse_line(words[at + 1 :])

    def format_help(self) -> str:
        """The help; the commands under this one, one a line."""
        text = super().format_help()
        for theirs, ours in _WORDING:
            text = text.replace(theirs, ours, 1)
        if not self._listed:
            return text
        width = max(map(len, self._listed))
        lines = [f"  {name:<{width}}  {line}" for name, line in self._listed.items()]
        before, options, after = text.partition("\nOptions:\n")
        return before + "\n".join(["\nCommands:", *lines, ""]) + options + after

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print and end with."""
        raise LaunchError(message, hint=self._hint())

    def _surplus(self, word: str) -> LaunchError:
        if not word.startswith("-"):
            return LaunchError(f"unexpected argument: {word}", hint=self._hint())
        from difflib import get_close_matches

        # The help is the one public list of a parser's options.
        options = [each.rstrip(",") for each in self.format_help().split() if each.startswith("-")]
        near = get_close_matches(word.partition("=")[0], options, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        return LaunchError(f"no such option: {word}{meant}", hint=self._hint())

    def _unknown(self, word: str) -> LaunchError:
        from difflib import get_close_matches

        near = get_close_matches(word, list(self._listed), n=1)
        hint = f"did you mean `{self.prog} {near[0]}`?" if near else self._hint()
        return LaunchError(f"there is no `{self.prog} {word}`", hint=hint)

    def _hint(self) -> str:
        return f"see `{self.prog} --help`"


def whole_number(at_least: int) -> Callable[[str], int]:
    """The type of an option that takes a whole number, not below a bound."""

    def parse(text: str) -> int:
        # Up to 18 digits: what is kept in 64 bits wherever it goes.
        digits = text.removeprefix("-")
        number = int(text) if digits.isdecimal() and len(digits) <= 18 else None
        if number is None or number < at_least:
            from argparse import ArgumentTypeError

            message = f"`{text[:60]}` has to be a whole number, {at_least} or more"
            raise ArgumentTypeError(message)
        return number

    return parse


def _formatter(prog: str) -> HelpFormatter:
    # Without a width argparse imports shutil to ask for it, at the first argument that is added.
    return HelpFormatter(prog, max_help_position=28, width=min(_columns(), MAX_WIDTH) - 2)


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and len(given) < 6 and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ else 80
    except (OSError, ValueError):
        return 80
