"""Describe a job's work, the place that does it, and the forecast of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from jobs.foresight.model import Term

# Parts of a job's time that are no limit by themselves.
TRAINING, RESTARTS = "training", "restarts"


class Limit(StrEnum):
    """Name the part of a job that shortens it most where it takes half its time."""

    COMPUTE = Term.COMPUTE
    INSIDE = Term.INSIDE
    ACROSS = Term.ACROSS
    SYNCHRONISATION = Term.SYNCHRONISATION
    LOADER = "loader"
    LINE = "line of a node"
    STORE = "store"
    START = "start-up"
    DATA = "download of the data"
    CHECKPOINTS = "checkpoints"
    EVALUATION = "evaluation"


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a figure, and the range that is meant to hold it in 9 of 10 cases."""

    middle: float
    low: float
    high: float

    @classmethod
    def sure(cls, value: float) -> Band:
        """Make the band of a figure that is known."""
        return cls(middle=value, low=value, high=value)

    def times(self, factor: float) -> Band:
        """Multiply by a number that is not negative."""
        return Band(middle=self.middle * factor, low=self.low * factor, high=self.high * factor)


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the rate of a training that nothing keeps waiting for data.

    `relieved` is the rate if the term that binds took half its time, `source` whose rates tell of the
    exchange between nodes where no run of the job does.
    """

    rate: Band
    binds: Term
    relieved: float
    why_wide: str | None = None
    source: str | None = None


SpeedAt = Callable[[int], Speed]  # of a number of nodes


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Describe the checkpoints of a training; `blocking_s` is how long it stands still for one."""

    every_s: float
    bytes: float = 0.0
    blocking_s: float = 0.0


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Describe what a job has to do, wherever it runs.

    `samples` are those of the whole training, None where nobody knows. `evaluation_s` is one
    evaluation on one rank; all ranks share it. `start_s` is all before the first step but the
    download of the data, which each node makes of `download_bytes`.
    """

    samples: float | None
    start_s: Band
    num_evaluations: float = 0.0
    evaluation_s: Band = Band.sure(0.0)
    download_bytes: float = 0.0
    sample_bytes: float = 0.0  # of a sample that is streamed; 0 where none is
    decoded_per_core: Band | None = None  # samples/s of one core
    checkpoints: Checkpoints | None = None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Describe the nodes and the store; None is no limit that is known.

    `evictions_per_node_hour` is 0 for nodes that nobody takes away.
    """

    cluster: str
    processes_per_node: int
    cores_per_node: int
    gpus_per_node: int = 0
    line_bytes_per_s: float | None = None
    store_bytes_per_s: float | None = None
    store_requests_per_s: float | None = None
    request_bytes: float = 1 << 20
    price_per_node_hour: float | None = None
    evictions_per_node_hour: float = 0.0


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """Tell from how many nodes on another limit binds."""

    nodes: int
    limit: Limit


class Twice(msgspec.Struct, frozen=True, kw_only=True):
    """Compare a layout with one of twice the nodes: so many times as fast, and as dear."""

    faster: float
    dearer: float


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Tell how fast a job runs on a layout, how long and at what cost.

    Times, costs and hours are None where the work is not known; an endless one has the time inf.
    `restarts` are those that are expected of nodes that are taken away. `parts` are the seconds of
    the time's middle, by the names of their limits, and of TRAINING and RESTARTS.
    """

    cluster: str
    nodes: int
    processes_per_node: int
    rate: Band
    time_s: Band | None
    cost: Band | None
    node_hours: Band | None
    gpu_hours: Band | None
    binds: Limit
    restarts: float
    why_wide: str | None
    source: str | None = None
    parts: Mapping[str, float] = {}
