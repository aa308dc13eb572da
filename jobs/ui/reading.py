"""Reads what pages show: the values of verbs, of each stack of the project or of one environment file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from jobs.calling import call
from jobs.contracts.errors import LaunchError, NotFound

# The name of an environment that a file describes, in addresses.
FILE = "file"
# So long a page of several environments waits for each, and so long for those of which nobody knows whether
# they are up; a page of one environment waits longer.
PATIENCE_S, UNKNOWN_S, PATIENCE_OF_ONE_S = 4.0, 1.0, 30.0
# A late answer, and the error of an environment that cannot be read, are kept so long for the next page.
KEPT_S = 60.0
# So many questions wait for an environment that does not answer; another is not asked.
MOST_WAITING = 8


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a verb told of one environment, or the error that it ended with."""

    place: str
    value: Any = None
    error: LaunchError | None = None


class Reading:
    """The environments whose pages are shown: `places` are names of stacks, or FILE."""

    def __init__(self, env_file: Path | None, late: Late | None = None) -> None:
        self._env_file = env_file
        self._late = late or Late()

    def once(self) -> Reading:
        """Give a reading for one request, which lists the stacks once."""
        return _OnceListed(self._env_file, self._late)

    def places(self) -> list[str]:
        """List the environments that are up, then those that may be: of a service or a bucket nobody knows."""
        if self._env_file is not None:
            return [FILE]
        return [each["stack"] for each in self.stacks() if each["up"]] + self.unknown()

    def unknown(self) -> list[str]:
        """List the environments of which nobody knows whether they are up."""
        return [each["stack"] for each in self.stacks() if each["up"] is None]

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

    def ask_machine(self) -> Any:
        """Give what `doctor` finds on this machine, whatever is up on it."""
        return call(["doctor", "--json"])

    def ask_each(self, *words: str, places: Sequence[str] | None = None) -> list[Told]:
        """Ask a verb of every environment (or of `places`) at once; one that fails tells its error."""
        return self.each(words, lambda place: self.ask(place, *words), places=places)

    def each(
        self,
        what: Sequence[str],
        ask: Callable[[str], Any],
        *,
        places: Sequence[str] | None = None,
    ) -> list[Told]:
        """Ask every environment at once for `what`; of several, one that is slow hides none of the others."""
        unknown = self.unknown()
        places = self.places() if places is None else places
        works = {
            (each, *what): partial(
                caught, each, partial(self._after_all, each in unknown, ask, each)
            )
            for each in places
        }
        return self._late.ask(works, unknown)

    def _after_all(self, is_unknown: bool, ask: Callable[[str], Any], place: str) -> Any:
        """Ask an environment; one that could not be read a moment ago is not asked again so soon."""
        if is_unknown:
            self._late.read(place, lambda: self.ask(place, "env", "show"))
        return ask(place)


class _OnceListed(Reading):
    @cached_property
    def _stacks(self) -> list[dict[str, Any]]:
        return super().stacks()

    def stacks(self) -> list[dict[str, Any]]:
        return self._stacks


@dataclass(frozen=True)
class _Asked:
    answer: Future[Told] = field(default_factory=Future[Told])
    # The time of the answer.
    ended: list[float] = field(default_factory=list[float])

    @property
    def is_stale(self) -> bool:
        return bool(self.ended) and time.monotonic() - self.ended[0] > KEPT_S


class Late:
    """What was asked and has not been told: it goes on, and the next page that asks gets the answer."""

    def __init__(
        self, patience_s: float = PATIENCE_S, patience_of_one_s: float = PATIENCE_OF_ONE_S
    ) -> None:
        self._patience_s, self._patience_of_one_s = patience_s, patience_of_one_s
        self._asked: dict[tuple[str, ...], _Asked] = {}
        self._unread: dict[str, tuple[float, LaunchError]] = {}
        self._lock = threading.Lock()

    def ask(
        self, works: dict[tuple[str, ...], Callable[[], Told]], unknown: Sequence[str] = ()
    ) -> list[Told]:
        """Do all at once; of one that takes too long an error, which says so. A key begins with the place.

        Those of `unknown` places have less time, once all others are there; of one place all have more.
        """
        with self._lock:
            self._asked = {key: each for key, each in self._asked.items() if not each.is_stale}
            for key, work in works.items():
                if key not in self._asked and self._num_waiting(key[0]) < MOST_WAITING:
                    self._begin(key, work)
            asked = {key: self._asked[key] for key in works if key in self._asked}
        is_one = len({key[0] for key in works}) < 2
        patience_s, unknown = (
            (self._patience_of_one_s, ()) if is_one else (self._patience_s, unknown)
        )
        until_s = time.monotonic() + patience_s
        wait([each.answer for key, each in asked.items() if key[0] not in unknown], patience_s)
        left_s = min(max(until_s - time.monotonic(), 0), UNKNOWN_S)
        wait([each.answer for key, each in asked.items() if key[0] in unknown], left_s)
        with self._lock:
            for key, each in asked.items():
                # Another page may have taken the answer, and a third have asked the same again.
                if each.answer.done() and self._asked.get(key) is each:
                    del self._asked[key]
        return [self._told(key[0], asked.get(key)) for key in works]

    def _told(self, place: str, asked: _Asked | None) -> Told:
        if asked is not None and asked.answer.done():
            return asked.answer.result()
        message = f"`{place}` has not answered yet"
        hint = "open the page again: it is still being asked"
        if asked is None:
            message = f"{MOST_WAITING} questions wait for `{place}`; this one was not asked"
            hint = "open the page again once it answers"
        return Told(place=place, error=LaunchError(message, hint=hint))

    def read(self, place: str, read: Callable[[], Any]) -> None:
        """Read an environment; raises its error of a moment ago without another look."""
        ended_s, error = self._unread.get(place, (-KEPT_S, None))
        if error is not None and time.monotonic() - ended_s < KEPT_S:
            raise error
        try:
            read()
        except LaunchError as failure:
            self._unread[place] = (time.monotonic(), failure)
            raise

    def _num_waiting(self, place: str) -> int:
        return sum(key[0] == place for key, each in self._asked.items() if not each.ended)

    def _begin(self, key: tuple[str, ...], work: Callable[[], Told]) -> None:
        asked = self._asked[key] = _Asked()
        # What a request says of how it is answered holds for what it asks, too.
        work_within = partial(copy_context().run, work)

        def answer() -> None:
            try:
                told = work_within()
            # As an executor does, whose threads a program that ends would wait for: who asked gets it.
            except BaseException as error:  # noqa: BLE001 - handed on, not handled
                asked.ended.append(time.monotonic())
                asked.answer.set_exception(error)
            else:
                asked.ended.append(time.monotonic())
                asked.answer.set_result(told)

        # A program that ends does not wait for it.
        threading.Thread(target=answer, daemon=True).start()


def alike(all_told: Sequence[Told]) -> list[Told]:
    """Give the errors, those that say the same of several environments as one."""
    found: dict[tuple[str, str | None], list[Told]] = {}
    for each in all_told:
        if each.error is not None:
            message = each.error.message.replace(each.place, "STACK")
            found.setdefault((message, each.error.hint), []).append(each)
    told: list[Told] = []
    for (message, hint), each in found.items():
        places = list(dict.fromkeys(one.place for one in each))
        error = LaunchError(message, hint=hint) if len(places) > 1 else each[0].error
        told.append(Told(place=", ".join(places), error=error))
    return told


def caught(place: str, ask: Callable[[], Any]) -> Told:
    """Give what was told, or the error in its place."""
    try:
        return Told(place=place, value=ask())
    except LaunchError as error:
        return Told(place=place, error=error)
