"""Chooses runs of a list by name, experiment, tags, state and age (pure), and shortens their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from msgspec import Struct

from jobs.contracts.spec import RunState, RunStatus
from jobs.host import console

# `YYYYMMDD-HHMMSS` of an id: the second of its creation.
_SHORT = 15


class Selection(Struct, frozen=True, kw_only=True):
    """Conditions that a run of a list meets; those that are empty are met by all.

    `name` and `experiment` are patterns (`resnet*`). A value of `tags` is None where the key alone
    is asked for. `since` is the time of the oldest run as ISO 8601 in UTC.
    """

    name: str | None = None
    experiment: str | None = None
    tags: tuple[tuple[str, str | None], ...] = ()
    states: frozenset[RunState] = frozenset()
    since: str | None = None

    @property
    def is_empty(self) -> bool:
        """Tell whether every run is taken."""
        return self == Selection()

    def is_too_old(self, run_id: str) -> bool:
        """Tell by its id whether a run, and so each one listed after it, was created too early."""
        return self.since is not None and _second_of(run_id) < _digits(self.since)

    def takes(self, run: RunStatus) -> bool:
        """Tell whether a run meets all conditions."""
        is_young = self.since is None or run.created >= self.since
        is_such = self.takes_job(run.name, run.experiment, run.tags)
        return is_young and is_such and self.takes_state(run.state)

    def takes_job(self, name: str, experiment: str | None, tags: Mapping[str, str]) -> bool:
        """Tell whether a job is as wanted; without an experiment it is one of the job's name."""
        if self.name is not None and not fnmatchcase(name, self.name):
            return False
        if self.experiment is not None and not fnmatchcase(experiment or name, self.experiment):
            return False
        return all(key in tags and value in (None, tags[key]) for key, value in self.tags)

    def takes_state(self, state: RunState) -> bool:
        """Tell whether the state is one of the wanted."""
        return not self.states or state in self.states


class Ids(Protocol):
    """Names runs without asking anybody."""

    def names(self) -> Sequence[str]:
        """List the ids that this machine knows."""
        ...


def shown_ids(ids: Sequence[str], known: Ids) -> dict[str, str]:
    """Give each id as a table shows it: on a terminal its beginning, where no other run has that."""
    if console.terminal_width() is None:
        return {each: each for each in ids}
    return shortened_ids(ids, known.names())


def shortened_ids(ids: Iterable[str], others: Iterable[str]) -> dict[str, str]:
    """Cut ids to the second of their creation where that is the only run of it."""
    ids = list(ids)
    counts = Counter(each[:_SHORT] for each in {*ids, *others})
    return {each: each[:_SHORT] if counts[each[:_SHORT]] == 1 else each for each in ids}


def _second_of(run_id: str) -> str:
    return run_id[:_SHORT].replace("-", "")


def _digits(time: str) -> str:
    return "".join(filter(str.isdigit, time))[:14]
