"""Says what Azure refuses that a model of one request cannot know: names, parents, locks, states."""

from __future__ import annotations

from tests.fakes.azure_native.kinds import Kind
from tests.fakes.azure_native.store import Record

State = dict[str, dict[str, Record]]


def check(
    state: State, troubles: Record, kind: Kind, resource_id: str, inputs: Record, old: Record | None
) -> None:
    pass


def check_delete(state: State, resource_id: str) -> None:
    pass
