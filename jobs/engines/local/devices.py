"""Decides which of this machine's GPUs a job may use: those that the shell shows, and none by some Horovods."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from pathlib import Path

from msgspec import structs

from jobs.contracts.errors import Refused
from jobs.contracts.spec import Environment, JobSpec
from jobs.engines.local.gpus import has_torch, horovod_lacks_nccl
from jobs.host.console import count_text
from jobs.host.gpus import VISIBLE, visible_gpus

HIDDEN = ("", "-1")
# What hides the GPUs from a job's ranks.
ON_THE_CPU = {VISIBLE: "-1"}


def with_visible_gpus(
    environment: Environment, environ: Mapping[str, str], count: Callable[[], int]
) -> Environment:
    """Give the environment with no more GPUs a node than the shell shows of those that `count` counts."""
    if VISIBLE not in environ or not any(
        each.gpus_per_node for each in environment.clusters.values()
    ):
        return environment
    num_visible = len(visible_gpus(environ, count()))
    clusters = {
        name: structs.replace(
            each, gpus_per_node=min(each.gpus_per_node, num_visible // each.max_nodes)
        )
        for name, each in environment.clusters.items()
    }
    return structs.replace(environment, clusters=clusters)


def why_on_the_cpu(
    spec: JobSpec,
    environ: Mapping[str, str],
    interpreter: Path,
    catalog: Collection[str],
    *,
    num_gpus: int,
) -> str | None:
    """Say why a job has to leave this machine's GPUs alone; None where nothing keeps it from them.

    Ranks that found GPUs would send every tensor through the CPU, or end. Raises Refused where the
    job itself asks for GPUs. `environ` is what ranks inherit, below the job's own variables;
    `catalog` has the jobs' names.
    """
    is_hidden = {**environ, **spec.env}.get(VISIBLE) in HIDDEN
    if spec.launcher not in ("horovod", "mpi") or not num_gpus or is_hidden:
        return None
    if not horovod_lacks_nccl(interpreter):
        return None
    gpus = count_text(num_gpus, "GPU")
    twin = f"{spec.name}-ddp"
    by_ddp = f"launch run {shlex.quote(twin)}" if twin in catalog else "launcher: torch"
    has_ddp = has_torch(interpreter)
    if asked := _asks_for_gpus(spec):
        message = f"this machine has {gpus}, and the Horovod of `{spec.image}` has no NCCL"
        instead = f"{by_ddp} (DDP uses NCCL), or " if has_ddp else ""
        raise Refused(message, hint=f"{instead}leave out {asked} to train on the CPU")
    why = f"trains on the CPU: the Horovod of `{spec.image}` has no NCCL, so the {gpus} here rest"
    return f"{why}; {by_ddp} uses them by DDP" if has_ddp else why


def _asks_for_gpus(spec: JobSpec) -> str | None:
    """Give the words by which a job wants GPUs and no CPU; None where it takes what there is."""
    if VISIBLE in spec.env:
        return f"`env: {VISIBLE}`"
    words = spec.command
    pairs = [*pairwise(words), *(tuple(each.split("=", 1)) for each in words)]
    return "`--device cuda`" if ("--device", "cuda") in pairs else None
