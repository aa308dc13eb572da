"""Finds versions of datasets in the store that no run of the environment has read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from functools import partial

from jobs.contracts.errors import LaunchError, Refused
from jobs.datasets.datasets import Datasets
from jobs.datasets.records import DatasetRecord
from jobs.engines.base import Engine
from jobs.host.disk import Leftover
from jobs.launching.prune import Age, digests_read
from jobs.runs.outcome import parse_time

DATASETS = "datasets"


def find_datasets(
    engine: Engine, age: Age, going: Collection[str], damaged: list[LaunchError]
) -> list[Leftover]:
    """List all versions; the newest of each, and those that a run reads that stays, stay.

    Raises Refused for a store that others use, too: their machines may know of runs that read it.
    """
    if not engine.store.has_own_records:
        message = f"others may need versions of the stack `{engine.environment.stack}`"
        raise Refused(message, hint="launch data rm NAME@N removes one version")
    datasets = Datasets.of(engine.environment)
    versions = datasets.versions(damaged=damaged)

    def read(going: Collection[str]) -> set[str] | None:
        unread = list(damaged)
        digests = digests_read(engine.removal.records("", unread), going)
        return None if unread else digests

    def why_stays(record: DatasetRecord, digests: set[str] | None) -> str | None:
        if any(each.name == record.name and each.version > record.version for each in versions):
            return _why_read(record, age, digests)
        return "the newest version"

    def take(record: DatasetRecord) -> str | None:
        # The runs that were to go are gone by now: one that is there, stays.
        if (reason := why_stays(record, read(()))) is not None:
            return reason
        datasets.remove(datasets.plan_removal(record.ref))
        engine.withdraw_dataset(record.pinned())
        return None

    digests = read(going)
    counts = Counter(each.digest for each in versions)
    return [
        Leftover(
            kind=DATASETS,
            name=each.ref,
            paths=(),
            stays=why_stays(each, digests),
            take=partial(take, each),
            num_bytes=each.bytes if counts[each.digest] == 1 else 0,
        )
        for each in versions
    ]


def _why_read(record: DatasetRecord, age: Age, digests: set[str] | None) -> str | None:
    if record.prefix is not None:
        return "registered in place"
    if digests is None:
        return "a record cannot be read"
    if record.digest in digests:
        return "read by a run that stays"
    is_young = time.time() - parse_time(record.created).timestamp() < age.older_s
    return "too young" if is_young else None
