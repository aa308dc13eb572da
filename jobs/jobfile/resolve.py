"""Job file + environment + dataset versions -> JobSpec: everything decided, nothing touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from msgspec import UNSET

from jobs.contracts.errors import LaunchError, Refused
from jobs.contracts.spec import (
    Cluster,
    DatasetVersion,
    Environment,
    InputSpec,
    JobFile,
    JobLimits,
    JobSpec,
    Limits,
)
from jobs.host.units import parse_duration
from jobs.jobfile.arguments import to_argv
from jobs.jobfile.notebook import OUTPUT, is_notebook, is_one_rank, notebook_command
from jobs.jobfile.read import CodeLocation


def resolve(
    job: JobFile,
    *,
    environment: Environment,
    datasets: Mapping[str, DatasetVersion],
    code: CodeLocation | None,
    image_reference: Callable[[str], str],
    pushed: Mapping[str, InputSpec] = MappingProxyType({}),
) -> JobSpec:
    """Decide everything that the job file leaves open.

    `datasets` maps what `inputs` name (`digits`, `digits@3`) to versions, `image_reference` an
    image to what the engine starts; `pushed` are the inputs that a path names. Raises Refused where no
    cluster is large enough, LaunchError where the job does not fit the environment otherwise.
    """
    cluster_name = choose_cluster(job, environment)
    cluster = environment.clusters[cluster_name]
    nodes, processes = size_on(job, cluster)
    _require_secrets(job, cluster_name, environment)
    command = command_of(job, code)
    if not is_one_rank(command, nodes * processes):
        message = f"a notebook has one kernel, and `{job.name}` has {size_text(nodes, processes)}"
        raise LaunchError(message, hint="--nodes 1 --processes-per-node 1")
    return JobSpec(
        name=job.name,
        stack=environment.stack,
        image=image_reference(job.image),
        launcher=job.launcher,
        command=command,
        code=code.folder if code else None,
        code_only=code.only if code else (),
        cluster=cluster_name,
        compute=cluster.compute,
        nodes=nodes,
        processes_per_node=processes,
        parameter_servers=job.parameter_servers,
        chief=job.chief,
        inputs={
            name: InputSpec(dataset=datasets[each.dataset], mode=each.mode, file=each.file)
            if each.dataset is not None
            else pushed[name]
            for name, each in job.inputs.items()
        },
        outputs=tuple({**job.outputs, **({OUTPUT: None} if is_notebook(job.script) else {})}),
        requirements=(code.requirements if code else None) or job.requirements or UNSET,
        setup=job.setup,
        env=job.env,
        secrets=job.secrets,
        limits=limits_of(job.limits, cluster, nodes),
        retry=job.retry,
        shm_size=job.shm_size,
        priority=job.priority,
        identity="user" if job.identity == "user" else UNSET,
        experiment=job.experiment,
        tags=job.tags,
    )


def choose_cluster(job: JobFile, environment: Environment) -> str:
    """Choose the cluster that the job names, else the first that is large enough."""
    clusters = environment.clusters
    if job.cluster is not None:
        require_cluster(environment, job.cluster)
    candidates = [job.cluster] if job.cluster else list(clusters)
    for name in candidates:
        if is_large_enough(job, clusters[name]):
            return name
    if not candidates:
        message = f"stack `{environment.stack}` has no cluster"
        raise Refused(message, hint="add one to its settings, then `pulumi up`")
    largest = max(
        candidates, key=lambda name: clusters[name].max_nodes * process_slots(clusters[name])
    )
    raise _too_large(job, environment, largest)


def require_cluster(
    environment: Environment, name: str, *, error: type[LaunchError] = LaunchError
) -> Cluster:
    """Give the cluster of a name; raises `error` with the nearest name where there is none."""
    clusters = environment.clusters
    if name in clusters:
        return clusters[name]
    message = f"stack `{environment.stack}` has no cluster `{name}`"
    near = get_close_matches(name, list(clusters), n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"it has: {', '.join(clusters) or 'none'}"
    raise error(message, hint=hint)


def _require_secrets(job: JobFile, name: str, environment: Environment) -> None:
    """Refuse secrets that the cluster's identity may not read; a sender's rights are not known."""
    cluster = environment.clusters[name]
    if job.identity == "user" or not (refused := _unreadable(job, cluster)):
        return
    told = ", ".join(f"`{secret}`" for secret in refused)
    message = f"cluster `{name}` may not read the secret{'s' if len(refused) > 1 else ''} {told}"
    hint = f"add {told} to `trainyard:secrets` or `clusters.{name}.secrets`, then `pulumi up`"
    for other, each in environment.clusters.items():
        if not _unreadable(job, each) and is_large_enough(job, each):
            raise LaunchError(message, hint=f"--cluster {other}")
    raise LaunchError(message, hint=hint)


def _unreadable(job: JobFile, cluster: Cluster) -> list[str]:
    """List the job's secrets that a cluster may not read; none where the stack does not say."""
    if cluster.secrets is None:
        return []
    # A vault compares names without case.
    known = {secret.lower() for secret in cluster.secrets}
    return sorted({secret for secret in job.secrets.values() if secret.lower() not in known})


def process_slots(cluster: Cluster) -> int:
    """Count the ranks that a node takes: one a GPU, else as many as the cluster says."""
    return cluster.gpus_per_node or cluster.processes_per_node


def size_on(job: JobFile, cluster: Cluster) -> tuple[int, int]:
    """Give the number of nodes, and of ranks on each."""
    nodes = cluster.max_nodes if job.nodes == "max" else job.nodes
    per_node = job.processes_per_node
    if per_node == "gpu":
        per_node = 1 if is_notebook(job.script) else process_slots(cluster)
    return nodes, per_node


def is_large_enough(job: JobFile, cluster: Cluster) -> bool:
    """Tell whether the cluster could ever hold the job."""
    nodes, processes = size_on(job, cluster)
    return nodes <= cluster.max_nodes and processes <= process_slots(cluster)


def command_of(job: JobFile, code: CodeLocation | None) -> tuple[str, ...]:
    """Give the argv of one rank; the word `python` in front means the image's own interpreter."""
    if job.module:
        words = ("python", "-m", job.module)
    elif job.script:
        script = (code.script if code else None) or job.script
        if is_notebook(script):
            return notebook_command(script, job.args)
        words = ("python", script)
    else:
        words = job.command or ()
    return (*words, *to_argv(job.args))


def hang_s(limits: JobLimits) -> float | None:
    """Give the seconds without a sign of life that count as a hang; None where nobody is to look."""
    return None if limits.hang == "off" else parse_duration(limits.hang)


def limits_of(limits: JobLimits, cluster: Cluster, nodes: int) -> Limits:
    """Convert limits to seconds: the lesser of the wall-clock limit and the cost limit's time."""
    given = parse_duration(limits.wall_clock) if limits.wall_clock else None
    in_seconds = Limits(wall_clock_s=given, hang_s=hang_s(limits))
    price = cluster.price_per_node_hour
    if limits.cost is None or price == 0:
        return in_seconds
    if price is None:
        message = f"the price of `{cluster.size}` is unknown, so `limits.cost` cannot be enforced"
        hint = (
            "give `limits.wall_clock` instead, or the cluster's `price_per_node_hour` in a file of "
            "`launch env export`"
        )
        raise LaunchError(message, hint=hint)
    affordable_s = limits.cost / (price * nodes) * 3600
    if given is not None and given < affordable_s:
        return in_seconds
    return Limits(wall_clock_s=affordable_s, hang_s=in_seconds.hang_s, cost=limits.cost)


def _too_large(job: JobFile, environment: Environment, name: str) -> Refused:
    cluster = environment.clusters[name]
    nodes, processes = size_on(job, cluster)
    fitting = (min(nodes, cluster.max_nodes), min(processes, process_slots(cluster)))
    where = f"cluster `{name}` of stack `{environment.stack}`"
    message = (
        f"`{job.name}` asks for {size_text(nodes, processes)}, and {where} "
        f"takes at most {size_text(cluster.max_nodes, process_slots(cluster))}"
    )
    options: list[str] = []
    if fitting[0] != nodes:
        options.append(f"--nodes {fitting[0]}")
    if fitting[1] != processes:
        options.append(f"--processes-per-node {fitting[1]}")
    hint = f"this fits: {' '.join(options)}"
    if fitting[1] != processes and cluster.gpus_per_node:
        hint += f" (one process a GPU, and a node has {cluster.gpus_per_node})"
    elif fitting[1] != processes and not (cluster.gpus_per_node or environment.is_imported):
        hint += f"; the maximum is the cluster's `processes_per_node` in Pulumi.{environment.stack}.yaml"
    return Refused(message, hint=hint)


def size_text(nodes: int, processes_per_node: int) -> str:
    """Write a job's size in words: `2 nodes x 4 processes`."""
    return (
        f"{nodes} node{'s' if nodes != 1 else ''} x "
        f"{processes_per_node} process{'es' if processes_per_node != 1 else ''}"
    )
