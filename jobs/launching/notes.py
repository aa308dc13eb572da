"""Notes of a plan that no engine has to know: what starts, and is hardly what was meant (pure)."""

from __future__ import annotations

from jobs.contracts.spec import Cluster, JobSpec
from jobs.host.console import count_text


def job_notes(spec: JobSpec, cluster: Cluster) -> tuple[str, ...]:
    """List what a job's plan should say beside the engine's own notes."""
    return (*_launcher_notes(spec), *_gpu_notes(spec, cluster))


def _launcher_notes(spec: JobSpec) -> list[str]:
    if spec.launcher != "none" or spec.world_size == 1:
        return []
    return [
        f"nothing connects the {spec.world_size} processes: each trains a model of its own; "
        "`launcher: torch`, `horovod`, `tensorflow` or `mpi` joins them"
    ]


def _gpu_notes(spec: JobSpec, cluster: Cluster) -> list[str]:
    num_idle = cluster.gpus_per_node - spec.processes_per_node
    if num_idle <= 0:
        return []
    has, paid = ("have", "are") if num_idle > 1 else ("has", "is")
    idle = f"{count_text(num_idle, 'GPU')} of {cluster.gpus_per_node} on each node {has} no process"
    # None is a price that is not known.
    price = "" if cluster.price_per_node_hour == 0 else f", and {paid} paid for"
    return [f"{idle}{price}; `processes_per_node: gpu` uses all"]
