"""Reads what pages show: the values of verbs, of each stack of the project or of one environment file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from jobs.calling import call
from jobs.contracts.errors import LaunchError, NotFound
from jobs.host.parallel import parallel

# The name of an environment that a file describes, in addresses.
FILE = "file"
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a verb told of one environment, or the error that it ended with."""

    place: str
    value: Any = None
    error: LaunchError | None = None


class Reading:
    """The environments whose pages are shown: `places` are names of stacks, or FILE."""

    def __init__(self, env_file: Path | None) -> None:
        self._env_file = env_file

    def places(self) -> list[str]:
        """List the environments that are up."""
        if self._env_file is not None:
            return [FILE]
        return [each["stack"] for each in self.stacks() if each["up"]]

    def stacks(self) -> list[dict[str, Any]]:
        """List the project's stacks; none beside an environment file."""
        return [] if self._env_file is not None else call(["env", "ls", "--json"])

    def words_for(self, place: str) -> list[str]:
        """Give the words that name an environment; raises NotFound for one that is not shown."""
        if self._env_file is not None and place == FILE:
            return [f"--env={self._env_file}"]
        if self._env_file is None and any(each["stack"] == place for each in self.stacks()):
            return [f"--stack={place}"]
        message = f"there is no stack `{place}` here"
        raise NotFound(message, hint="launch env ls")

    def ask(self, place: str, *words: str, of: Sequence[str] = ()) -> Any:
        """Give the value of a verb for one environment; `of` are its arguments."""
        return call([*words, "--json", *self.words_for(place), *(["--", *of] if of else [])])

    def ask_each(self, *words: str) -> list[Told]:
        """Ask a verb of every environment at once; one that fails tells its error."""
        return parallel(partial(self._told, words), self.places())

    def _told(self, words: Sequence[str], place: str) -> Told:
        return caught(place, lambda: self.ask(place, *words))


def caught(place: str, ask: Callable[[], Any]) -> Told:
    """Give what was told, or the error in its place."""
    try:
        return Told(place=place, value=ask())
    except LaunchError as error:
        return Told(place=place, error=error)
