"""Tracks the leaves of a document: what became of each is told once, and none can be dropped.

A reader takes values from `Place`s, and says of each leaf that it was converted, is kept by a variable,
or is refused. Leaves that no reader took are refused at the end, as keys that nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NoReturn

from msgspec import Struct

from jobs.contracts.errors import LaunchError
from jobs.jobfile.yaml_tree import Entry, Node, Scalar

UNKNOWN = "the key is unknown: see docs/import.md for those that are read"


class Outcome(StrEnum):
    """What became of a leaf."""

    CONVERTED = "converted"
    KEPT = "kept"  # by a variable that is set for the run
    REFUSED = "refused"


class Told(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One leaf of a document: `became` is where it went, `reason` why it was refused and what to do."""

    key: str
    outcome: Outcome
    file: str
    became: str | None = None
    reason: str | None = None


class Leaves:
    """The leaves of one document, and what was told of them."""

    def __init__(self, root: Node, file: str) -> None:
        self.file = file
        self.top = Place(self, root, "")
        self._told: dict[tuple[str, int], Told] = {}

    def __contains__(self, leaf: Place) -> bool:
        return leaf.identity in self._told

    def tell(self, leaf: Place, outcome: Outcome, *, became: str = "", reason: str = "") -> None:
        """Note what became of a leaf. A refusal stands, whatever else is said of the leaf."""
        before = self._told.get(leaf.identity)
        if before and before.outcome is Outcome.REFUSED:
            return
        self._told[leaf.identity] = Told(
            key=leaf.key,
            outcome=outcome,
            file=self.file,
            became=became or None,
            reason=reason or None,
        )

    def close(self) -> list[Told]:
        """Refuse what nobody took; give all leaves in the document's order."""
        self.top.refuse_rest(UNKNOWN)
        return [self._told[leaf.identity] for leaf in self.top.leaves()]


class Merged(Leaves):
    """A tree that was made of others: what is told of a leaf is told of the place that it came from."""

    def __init__(self, root: Node, file: str, origins: Mapping[int, Place]) -> None:
        super().__init__(root, file)
        self._origins = origins

    def __contains__(self, leaf: Place) -> bool:
        origin = self._origins.get(id(leaf.node))
        return origin is None or origin.is_told

    def tell(self, leaf: Place, outcome: Outcome, *, became: str = "", reason: str = "") -> None:
        """Tell of the leaf's origin; a value that nobody wrote has none."""
        if origin := self._origins.get(id(leaf.node)):
            origin.tell(outcome, became=became, reason=reason)


class Place:
    """A value of a document, by its key in it (`properties.mountVolumes.azureFileShares[0]`)."""

    def __init__(self, leaves: Leaves, node: Node, key: str) -> None:
        self._leaves, self._node, self.key = leaves, node, key

    @property
    def identity(self) -> tuple[str, int]:
        """Tell it from a leaf whose key reads alike, as those of `{"a.b": 1, "a": {"b": 2}}`."""
        return self.key, id(self._node)

    @property
    def node(self) -> Node:
        """Give the part of the tree."""
        return self._node

    @property
    def is_told(self) -> bool:
        """Tell whether something was said of it, as of one leaf."""
        return self in self._leaves

    @property
    def name(self) -> str:
        """Give the last part of the key, without the number of an item."""
        return self.key.rpartition(".")[2].partition("[")[0]

    @property
    def where(self) -> str:
        """File, line and column."""
        return self._node.where

    @property
    def value(self) -> Scalar | list[Node] | dict[str, Entry]:
        """The value itself."""
        return self._node.value

    @property
    def keys(self) -> list[str]:
        """Keys of a mapping whose values are not null."""
        value = self._node.value
        found = value.items() if isinstance(value, dict) else ()
        return [name for name, entry in found if entry.node.value is not None]

    def leaves(self) -> Iterator[Place]:
        """Walk over all scalars that are not null."""
        value = self._node.value
        if isinstance(value, dict | list):
            for each in self.members() if isinstance(value, dict) else self.items():
                yield from each.leaves()
        elif value is not None:
            yield self

    def members(self) -> list[Place]:
        """Give the values of a mapping."""
        return [found for name in self.keys if (found := self.get(name))]

    def items(self) -> list[Place]:
        """Give the items of a list; raises LaunchError for anything else."""
        value = self._node.value
        if self.is_expression():
            return []
        if not isinstance(value, list):
            self.fail("a list")
        return [
            Place(self._leaves, node, f"{self.key}[{number}]")
            for number, node in enumerate(value)
            if node.value is not None
        ]

    def get(self, *names: str) -> Place | None:
        """Give the value of the first of these keys that is there and not null."""
        value = self._node.value
        for name in names:
            entry = value.get(name) if isinstance(value, dict) else None
            if entry is not None and entry.node.value is not None:
                return Place(self._leaves, entry.node, f"{self.key}.{name}" if self.key else name)
        return None

    def section(self, *names: str) -> Place | None:
        """Give the mapping under a key; raises LaunchError for anything else."""
        found = self.get(*names)
        if found is None or found.is_expression():
            return None
        if not isinstance(found.value, dict):
            found.fail("an object")
        return found

    def list(self, *names: str) -> list[Place]:
        """Give the mappings in the list under a key; raises LaunchError for anything else."""
        found = self.get(*names)
        items = found.items() if found else []
        for each in items:
            if not isinstance(each.value, dict):
                each.fail("an object")
        return items

    def take_text(self, *names: str) -> tuple[str, Place] | None:
        """Give the text under a key, and its place; raises LaunchError for anything else."""
        found = self.get(*names)
        if found is None:
            return None
        if not isinstance(found.value, str):
            found.fail("a text")
        return found.value, found

    def take_number(self, *names: str) -> tuple[int, Place] | None:
        """Give the whole number under a key, and its place; raises LaunchError for anything else."""
        found = self.get(*names)
        if found is None or found.is_expression():
            return None
        value = found.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            found.fail("a whole number")
        return value, found

    def converted(self, became: str) -> None:
        """Tell of every leaf in here that it was converted."""
        self.tell(Outcome.CONVERTED, became=became)

    def kept(self, variable: str) -> None:
        """Tell of every leaf in here that a variable keeps it."""
        self.tell(Outcome.KEPT, became=variable)

    def refused(self, reason: str) -> None:
        """Tell of every leaf in here that it was refused, unless something was said of it."""
        self.tell(Outcome.REFUSED, reason=reason)

    def refuse_rest(self, reason: str) -> None:
        """Refuse every leaf in here of which nothing was said."""
        for place in self.leaves():
            if place not in self._leaves:
                place.refused(reason)

    def fail(self, wanted: str) -> NoReturn:
        """Raise LaunchError for a value of another type."""
        message = f"{self.where}: `{self.key}` has to be {wanted}"
        raise LaunchError(message, hint="correct it there, and import it again")

    def tell(self, outcome: Outcome, *, became: str = "", reason: str = "") -> None:
        """Tell of every leaf in here."""
        for place in self.leaves():
            self._leaves.tell(place, outcome, became=became, reason=reason)

    def is_expression(self) -> bool:
        """Tell whether an expression of a template (`[parameters('x')]`) stands here; refuse it."""
        value = self._node.value
        if not isinstance(value, str) or not (value.startswith("[") and value.endswith("]")):
            return False
        self.refused("an expression of an ARM template: write its value in its place")
        return True
