"""Counts the corrupt pictures that a training goes on without, up to a limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.data.pictures.header import CorruptPicture


class CorruptPictures:
    """The corrupt pictures that a rank has met, of all its splits; for any number of threads.

    Each picture counts once towards the limit `most`, however many epochs see it. `fail` is told of one
    too many, and lets training end in its own time.
    """

    def __init__(self, most: int, *, fail: Callable[[TrainingError], None] | None = None) -> None:
        self._most = most
        self._fail = fail
        self._names: set[str] = set()
        self._counting = threading.Lock()
        self.num_skipped = 0

    def skip(self, error: CorruptPicture) -> None:
        """Count a picture that is left out, and name it once on stderr.

        Raises the error itself where none may be skipped, and TrainingError beyond the limit unless `fail` ends
        the training.
        """
        if not self._most:
            raise error
        with self._counting:
            self.num_skipped += 1
            if error.picture in self._names:
                return
            self._names.add(error.picture)
            number = len(self._names)
        if number > self._most:
            message = f"{number} corrupt pictures are more than --max-corrupt {self._most}: {error.message}"
            failure = TrainingError(message, hint=error.hint)
            if self._fail is None:
                raise failure
            self._fail(failure)
        ends = " and training ends" if number > self._most else ""
        warn(f"{error.message}; it is skipped{ends}, {number} of at most {self._most}")


def places_without(
    corrupt: Mapping[int, CorruptPicture],
    number: int,
    *,
    counted: CorruptPictures | None,
    is_filled: bool,
) -> list[int]:
    """Give the places of a batch of so many that are left, and some again where it is to be filled.

    Raises the error of a corrupt picture where they are not `counted`, and TrainingError where none is left
    to fill the batch with.
    """
    for place in sorted(corrupt):
        if counted is None:
            raise corrupt[place]
        counted.skip(corrupt[place])
    whole = [place for place in range(number) if place not in corrupt]
    if not is_filled:
        return whole
    if not whole:
        message = f"all {number} pictures of a rank's batch are corrupt, and none can stand in: {corrupt[0].message}"
        raise TrainingError(message, hint="a larger batch, or the data set without them")
    return whole + [whole[each % len(whole)] for each in range(len(corrupt))]
