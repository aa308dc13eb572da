"""Queues runs for a cluster's nodes: files under one flock, no scheduler process.

    clusters/<compute>/lock
    clusters/<compute>/queue/<0-2>-<run id>    waits; names sort by priority, then by age
    clusters/<compute>/claims/<run id>         runs, and on which nodes

A run is put into the queue when it is submitted, so that the order is that of the submits. Its
supervisor claims nodes for it when it is the first and they are free: strictly in order, so that
a large job is never passed for ever by small ones. Entries of runs whose supervisor is gone are
dropped by whoever meets them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Priority
from jobs.host.files import write_file
from jobs.host.private import locked, make_folder
from jobs.host.untrusted import read_json
from jobs.runs.supervision import is_supervised, poke

T = TypeVar("T")
_ORDER: dict[Priority, str] = {"high": "0", "normal": "1", "low": "2"}


class Ticket(Struct, frozen=True, kw_only=True):
    """A place in the queue."""

    run_dir: str
    nodes: int


class Claim(Struct, frozen=True, kw_only=True):
    """Nodes of the cluster that a run holds, as places 0..capacity-1."""

    run_dir: str
    nodes: tuple[int, ...]


def free_nodes(asked: int, claims: Sequence[Claim], capacity_nodes: int) -> tuple[int, ...] | None:
    """Choose the lowest free places for a run; None while there are too few."""
    taken = {node for claim in claims for node in claim.nodes}
    free = [node for node in range(capacity_nodes) if node not in taken]
    return tuple(free[:asked]) if len(free) >= asked else None


class Slots:
    """The queue and the claims of one cluster."""

    def __init__(self, workspace: Path, compute: str) -> None:
        """Name a cluster's queue; raises LaunchError for a `compute` of a run's record that is no plain name."""
        if not re.fullmatch(r"\w[\w.-]*", compute):
            message = f"invalid cluster name `{compute:.40}`"
            raise LaunchError(message, hint="launch env show")
        self._folder = workspace / "clusters" / compute
        self._queue = self._folder / "queue"
        self._claims = self._folder / "claims"

    def enqueue(self, run_dir: Path, nodes: int, priority: Priority) -> None:
        """Put a run at the end of its priority's queue."""
        make_folder(self._queue)
        make_folder(self._claims)
        ticket = Ticket(run_dir=str(run_dir), nodes=nodes)
        with self._locked():
            _write(self._queue / f"{_ORDER[priority]}-{run_dir.name}", ticket)

    def claim(self, run_dir: Path, capacity_nodes: int) -> tuple[int, ...] | None:
        """Take the run's nodes if it is first and they are free; None: it has to wait."""
        with self._locked():
            first = self._first_ticket(own=run_dir.name)
            if first is None or first.name.partition("-")[2] != run_dir.name:
                return None
            ticket = _read(first, Ticket)
            if ticket is None:
                message = f"`{first}` has a format that this version does not know"
                raise LaunchError(message, hint="launch run JOB again")
            nodes = free_nodes(ticket.nodes, self._living_claims(), capacity_nodes)
            if nodes is None:
                return None
            _write(self._claims / run_dir.name, Claim(run_dir=str(run_dir), nodes=nodes))
            first.unlink()
        self.poke_first()  # there may be room for the next one, too
        return nodes

    def release(self, run_dir: Path) -> None:
        """Give back what the run holds or its place in the queue; wakes the first that waits."""
        if not self._folder.exists():
            return
        with self._locked():
            (self._claims / run_dir.name).unlink(missing_ok=True)
            for order in _ORDER.values():
                (self._queue / f"{order}-{run_dir.name}").unlink(missing_ok=True)
        self.poke_first()

    def poke_first(self) -> None:
        """Wake the supervisor of the first run in the queue."""
        names = self._names(self._queue)
        if names:
            poke(self._run_dir(names[0].partition("-")[2]))

    def ahead_of(self, run_dir: Path) -> int:
        """Count the runs that wait before this one."""
        names = [name.partition("-")[2] for name in self._names(self._queue)]
        return names.index(run_dir.name) if run_dir.name in names else 0

    def holders(self) -> list[str]:
        """List the runs that have nodes now."""
        return sorted(self._names(self._claims))

    def _first_ticket(self, *, own: str) -> Path | None:
        """Find the first entry that is `own` or whose run is looked after; drops those before it."""
        for name in self._names(self._queue):
            run_id = name.partition("-")[2]
            if run_id == own or is_supervised(self._run_dir(run_id)):
                return self._queue / name
            (self._queue / name).unlink(missing_ok=True)
        return None

    def _living_claims(self) -> list[Claim]:
        claims: list[Claim] = []
        for name in self._names(self._claims):
            claim = _read(self._claims / name, Claim)
            # Of a damaged one nobody knows which nodes it means.
            if claim is not None and is_supervised(self._run_dir(name)):
                claims.append(claim)
            else:
                (self._claims / name).unlink(missing_ok=True)
        return claims

    def _run_dir(self, run_id: str) -> Path:
        return self._folder.parent.parent / "runs" / run_id

    @staticmethod
    def _names(folder: Path) -> list[str]:
        try:
            names = os.listdir(folder)  # noqa: PTH208 (names are all that is needed)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if not name.startswith("."))

    @contextmanager
    def _locked(self) -> Generator[None]:
        with locked(self._folder / "lock"):
            yield


def _write(path: Path, entry: Ticket | Claim) -> None:
    write_file(path, msgspec.json.encode(entry), is_synced=False)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return read_json(path, kind)
    except (OSError, msgspec.DecodeError):
        return None
