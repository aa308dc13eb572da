"""Finds versions of datasets in the store that no run or model of the environment needs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable
from functools import partial

from jobs.contracts.errors import LaunchError, Refused
from jobs.datasets.datasets import Datasets
from jobs.datasets.models import Models
from jobs.datasets.records import DatasetRecord
from jobs.engines.base import Engine
from jobs.host.disk import Leftover
from jobs.launching.prune import Age, digests_read
from jobs.runs.outcome import parse_time

DATASETS = "datasets"


def find_datasets(
    engine: Engine, age: Age, going: Collection[str], damaged: list[LaunchError]
) -> list[Leftover]:
    """List all versions; the newest of each, and those that a staying run or a model needs, stay.

    Raises Refused for a store that others use, too: their machines may know of runs that read it.
    """
    if not engine.store.has_own_records:
        message = f"others may need versions of the stack `{engine.environment.stack}`"
        raise Refused(message, hint="launch data rm NAME@N removes one version")
    datasets = Datasets.of(engine.environment)
    models = Models.of(engine.environment)
    versions = datasets.versions(damaged=damaged)

    def needed(going: Collection[str], damaged: list[LaunchError]) -> dict[str, str] | None:
        by_models = _digests_named(models.versions(damaged=damaged))
        unread = list(damaged)
        by_runs = digests_read(engine.removal.records("", unread), going)
        if unread:
            return None
        return dict.fromkeys(by_models, "named by a model's record") | dict.fromkeys(
            by_runs, "read by a run that stays"
        )

    def why_stays(record: DatasetRecord, reasons: dict[str, str] | None) -> str | None:
        if any(each.name == record.name and each.version > record.version for each in versions):
            return _why_needed(record, age, reasons)
        return "the newest version"

    def take(record: DatasetRecord) -> str | None:
        # The runs that were to go are gone by now: one that is there, stays.
        if (reason := why_stays(record, needed((), list(damaged)))) is not None:
            return reason
        datasets.remove(datasets.plan_removal(record.ref))
        engine.withdraw_dataset(record.pinned())
        return None

    reasons = needed(going, damaged)
    counts = Counter(each.digest for each in versions)
    return [
        Leftover(
            kind=DATASETS,
            name=each.ref,
            paths=(),
            stays=why_stays(each, reasons),
            take=partial(take, each),
            num_bytes=each.bytes if counts[each.digest] == 1 else 0,
        )
        for each in versions
    ]


def _digests_named(models: Iterable[DatasetRecord]) -> set[str]:
    return {
        each.digest
        for model in models
        if model.lineage is not None
        for each in model.lineage.inputs.values()
    }


def _why_needed(record: DatasetRecord, age: Age, reasons: dict[str, str] | None) -> str | None:
    if record.prefix is not None:
        return "registered in place"
    if reasons is None:
        return "a record cannot be read"
    if record.digest in reasons:
        return reasons[record.digest]
    is_young = time.time() - parse_time(record.created).timestamp() < age.older_s
    return "too young" if is_young else None
