"""Notes of a plan that no engine has to know: what starts, and is hardly what was meant (pure)."""

from __future__ import annotations

import re

from jobs.contracts.spec import Cluster, Environment, JobFile, JobSpec
from jobs.host.console import count_text

# Commands of `setup` that fetch something, unless a mirror is set up.
_FETCHES = re.compile(r"\b(pip3?|uv|conda|mamba|apt|apt-get|npm|curl|wget|git clone)\b")


def job_notes(job: JobFile, spec: JobSpec, environment: Environment) -> tuple[str, ...]:
    """List what a job's plan should say beside the engine's own notes."""
    cluster = environment.clusters[spec.cluster]
    notes = (
        *_launcher_notes(spec),
        *_core_notes(spec, cluster),
        *_gpu_notes(spec, cluster),
        *_cluster_notes(job, spec, environment),
    )
    return notes if environment.network != "private" else (*notes, *_way_out_notes(spec))


def _launcher_notes(spec: JobSpec) -> list[str]:
    if spec.launcher != "none" or spec.world_size == 1:
        return []
    return [
        f"nothing connects the {spec.world_size} processes: each trains a model of its own; "
        "`launcher: torch`, `horovod`, `tensorflow` or `mpi` joins them"
    ]


def _way_out_notes(spec: JobSpec) -> list[str]:
    """Note what a job fetches on nodes that reach nothing on the internet."""
    fetched = [f"`{line}`" for line in spec.setup if _FETCHES.search(line)]
    if spec.requirements:
        fetched.insert(0, f"`requirements: {spec.requirements}`")
    if not fetched:
        return []
    return [
        f"nodes of this stack cannot reach the internet, and this is fetched: {', '.join(fetched)}; "
        "use an index inside its network, or put packages into the image"
    ]


def _core_notes(spec: JobSpec, cluster: Cluster) -> list[str]:
    num_cores = cluster.cpus_per_node
    if spec.processes_per_node <= num_cores:
        return []
    return [
        f"the {spec.processes_per_node} processes on each node share {count_text(num_cores, 'core')}: "
        "a smaller `processes_per_node` is likely to train faster"
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


def _cluster_notes(job: JobFile, spec: JobSpec, environment: Environment) -> list[str]:
    """Note that the first cluster was taken, where another has the GPUs that the job would use."""
    clusters = environment.clusters
    if job.cluster is not None or job.processes_per_node != "gpu":
        return []
    if clusters[spec.cluster].gpus_per_node:
        return []
    return [
        f"cluster `{spec.cluster}`, the first that is large enough, has no GPUs; "
        f"`--cluster {name}` has {each.gpus_per_node} on each node"
        for name, each in clusters.items()
        if each.gpus_per_node
    ][:1]
