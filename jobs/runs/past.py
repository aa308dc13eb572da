"""Sum up what finished runs tell of the next run of their job, and keep it beside the run store.

One line a run in `past-runs.jsonl` of the workspace's folder (docs/run-directory.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from jobs.contracts.spec import Cluster, JobSpec
from jobs.host.files import write_file
from jobs.host.untrusted import parse_json, read_small
from jobs.runs.lengths import Unit, without_epochs
from jobs.runs.store import RUN_ID

FILE = "past-runs.jsonl"
MOST_RUNS = 500
# What others share is added by a thread beside what this process adds.
_WRITING = Lock()
MOST_BYTES = 1 << 20
# Of what is smaller the products of two are no figures any more.
Figure = Annotated[float, Meta(ge=1e-15, le=1e15)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
RunId = Annotated[str, Meta(pattern=f"^{RUN_ID.pattern}$(?!\\n)")]
Key = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}$(?!\n)")]
Text = Annotated[str, Meta(max_length=200)]


class PastRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Keep the figures of a finished run, so that forecasts need not read the run again.

    `rate` is in units a second of all ranks, `total` the units of the whole run, `batch` the samples
    of a step of all ranks. `prepare_s` is the time before the ranks start, `start_s` theirs before
    the first step and after the last one, `node_bytes_per_s` what the store gave a node at most,
    `evaluation_s` that of each of the `num_evaluations`. A check of the network has no rate, but the
    bus bandwidth of an all-reduce over all ranks and over those of a node, in GB/s.
    """

    run: RunId
    key: Key = "0" * 16
    size: Text = ""
    gpus_per_node: Annotated[int, Meta(ge=0, le=1024)] = 0
    cores_per_node: Count = 1
    nodes: Count = 1
    processes_per_node: Count = 1
    unit: Unit = "sample"
    rate: Figure | None = None
    total: Figure | None = None
    epochs: Figure | None = None
    batch: Figure | None = None
    parameters: Figure | None = None
    decoded_per_core: Figure | None = None
    node_bytes_per_s: Figure | None = None
    prepare_s: Seconds | None = None
    start_s: Seconds | None = None
    evaluation_s: Seconds = 0.0
    num_evaluations: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    checkpoint_every_s: Figure | None = None
    checkpoint_blocking_s: Seconds = 0.0
    checkpoint_bytes: Annotated[float, Meta(ge=0, le=1e15)] = 0.0
    bus_gb_per_s: Figure | None = None
    node_bus_gb_per_s: Figure | None = None
    latency_s: Seconds | None = None

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.nodes * self.processes_per_node

    def is_on(self, cluster: Cluster) -> bool:
        """Tell whether the run's nodes were like those of a cluster."""
        mine = (self.size, self.gpus_per_node, self.cores_per_node)
        return mine == (cluster.size, cluster.gpus_per_node, cluster.cpus_per_node)


def job_key(spec: JobSpec) -> Key:
    """Name what runs of equal speed on equal nodes share: 16 hex digits.

    Neither their size nor their number of epochs counts, nor the version of image and data.
    """
    from jobs.host.cache import content_key

    image = spec.image.partition("@")[0]
    datasets = sorted(each.dataset.name for each in spec.inputs.values())
    # Variables may set threads, or the way of an exchange.
    variables = sorted(f"{name}={value}" for name, value in spec.env.items())
    words = without_epochs(spec.command)
    parts = [spec.name, image, spec.launcher, *words, "\0", *datasets, "\0", *variables]
    return content_key(parts)


def read_past_runs(workspace: Path) -> list[PastRun]:
    """Read the file, newest run first; lines that are none are passed over."""
    try:
        lines = read_small(workspace / FILE, MOST_BYTES).splitlines()
    except OSError:
        return []
    found: dict[str, PastRun] = {}
    for line in lines:
        with suppress(msgspec.DecodeError):
            past = parse_json(line, PastRun)
            found[past.run] = past
    return sorted(found.values(), key=lambda each: each.run, reverse=True)[:MOST_RUNS]


def add_past_runs(workspace: Path, new: Iterable[PastRun]) -> list[PastRun]:
    """Add runs to the file, and keep the newest; gives all. What cannot be kept is read again."""
    more = {each.run: each for each in new}
    with _WRITING:
        known = {each.run: each for each in read_past_runs(workspace)}
        kept = sorted((known | more).values(), key=lambda each: each.run, reverse=True)[:MOST_RUNS]
        if more:
            lines = b"".join(msgspec.json.encode(each) + b"\n" for each in reversed(kept))
            with suppress(OSError):
                write_file(workspace / FILE, lines, is_synced=False)
    return kept
