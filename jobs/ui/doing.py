"""Does what pages were told to do, beside them: short actions at once, long ones while a page says so."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.contracts.errors import LaunchError, NotFound
from jobs.ui.edge import or_bug

# So long a page waits for the end of an action before it says that it goes on; and so many are remembered.
SHORT_S, MOST = 2.0, 100


@dataclass(kw_only=True)
class Doing:
    """An action that was begun: its environment, its words, and what came of it."""

    number: int
    place: str
    words: Sequence[str]
    # Of the form by which it was begun; empty where that has none.
    once: str = ""
    began_s: float = field(default_factory=time.monotonic)
    value: Any = None
    error: LaunchError | None = None
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def took_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began_s


class Doings:
    """The actions of this server, the newest ones."""

    def __init__(self) -> None:
        self._known: dict[int, Doing] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def begin(
        self, place: str, words: Sequence[str], do: Callable[[], Any], *, once: str = ""
    ) -> Doing:
        """Begin an action; blocks until its end, or for a short time.

        Gives the one that the same form has begun already: a second click sends it again.
        """
        with self._lock:
            doing = next(
                (each for each in self._known.values() if once and each.once == once), None
            )
            is_new = doing is None
            if doing is None:
                doing = Doing(number=next(self._numbers), place=place, words=words, once=once)
                self._known[doing.number] = doing
                self._known.pop(doing.number - MOST, None)
        if is_new:
            # A server that ends does not wait for it: what it does can be begun again.
            threading.Thread(target=_act, args=(doing, do), daemon=True).start()
        doing.is_over.wait(SHORT_S)
        return doing

    def find(self, number: int) -> Doing:
        """Find an action; raises NotFound for one that this server does not know."""
        found = self._known.get(number)
        if found is None:
            message = f"there is no action {number} here"
            raise NotFound(message, hint="it was begun before `launch ui` was started, or long ago")
        return found


def _act(doing: Doing, do: Callable[[], Any]) -> None:
    try:
        doing.value = or_bug(do)
    except LaunchError as error:
        doing.error = error
    finally:
        doing.is_over.set()
