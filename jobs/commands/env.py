"""`launch env`: list, show, export, import, check, repair and trust environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jobs.commands import completers, env_import, options
from jobs.commands.usage import make_app
from jobs.contracts.errors import EnvironmentFailure, ExitCode, LaunchError
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import Cluster, Environment
    from jobs.engines.azure_ml.quota_check import QuotaCheck
    from jobs.stacks.changes import Changes, Loss
    from jobs.stacks.reachability import PartCheck

# Of what is told in one line.
NUM_NAMES = 8
NUM_REASONS = 3

Refresh = Annotated[bool, typer.Option("--refresh", help="Ask Pulumi, whatever the cache has.")]


def list_environments(*, json: options.Json = False) -> None:
    """List the stacks that have settings, and which of them are up on this machine."""
    from jobs.stacks.stack import list_stacks

    stacks = list_stacks()
    if json:
        console.out_json([{"stack": name, "up": up} for name, up in stacks])
        return
    rows = [[name, {True: "yes", False: "no", None: "unknown"}[up]] for name, up in stacks]
    console.out(console.table(["STACK", "UP"], rows))


def show(
    *,
    stack: options.Stack,
    env: options.EnvFile = None,
    refresh: Refresh = False,
    json: options.Json = False,
) -> None:
    """Show an environment: store, workspace, clusters, images."""
    from jobs.stacks.stack import load_environment

    environment = load_environment(stack, env, refresh=refresh)
    if json:
        console.out_json(environment)
        return
    from jobs.stacks.prices import with_list_prices

    _print(with_list_prices(environment))


def export(
    *,
    stack: options.Stack,
    engine: Annotated[
        options.CloudEngine | None,
        typer.Option(
            help="How jobs are run there, where not as the stack says: azureml_v1 is Azure ML's "
            "first API."
        ),
    ] = None,
    output: options.Output = None,
    refresh: Refresh = False,
) -> None:
    """Write an environment for somebody without Pulumi, who uses it by `--env FILE`."""
    from msgspec.structs import replace

    from jobs.host.environment_file import write_environment
    from jobs.stacks.stack import load_environment

    environment = load_environment(stack, refresh=refresh)
    if engine is not None:
        if environment.engine == "local":
            message = f"stack `{stack}` is this machine: --engine is for stacks on Azure"
            raise LaunchError(message, hint=f"launch env export -s {stack}")
        environment = replace(environment, engine=engine)
    if output is None:
        console.out_json(environment)
        return
    write_environment(environment, output)
    console.say(f"wrote {output}; use it by `launch ... --env {output}`")


def check(
    *,
    stack: options.Stack,
    env: options.EnvFile = None,
    only: Annotated[
        Literal["parts", "changes"] | None,
        typer.Option(
            help="Half of it: `changes` for a CI that cannot reach the parts, `parts` for who may "
            "not preview."
        ),
    ] = None,
    allow_replace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A cluster or resource that may be replaced or deleted, with all that is in it. "
            "May be repeated.",
            autocompletion=completers.clusters,
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Look whether each part can be used from here, and what `pulumi up` would destroy.

    Ends with 3 where something would be replaced or deleted that --allow-replace does not name,
    whatever else it found; else with 1 where a part cannot be used, the quota leaves a cluster no
    node, or the preview failed.
    """
    from jobs.stacks.changes import find_refusal
    from jobs.stacks.stack import preview

    allowed = allow_replace or []
    if env is not None and (only == "changes" or allowed):
        message = f"{env} is what a stack was; only a stack has changes to come"
        raise LaunchError(message, hint="launch env check -s STACK")
    if only == "parts" and allowed:
        message = "--only parts looks at no change that --allow-replace could allow"
        raise LaunchError(message, hint=f"launch env check -s {stack} --allow-replace {allowed[0]}")
    # The parts are told even where the preview then fails.
    parts = None if only == "changes" else _check_parts(stack, env, is_quiet=json)
    changes = previewed = None
    if only != "parts" and env is None:
        if parts and not json:
            console.out()
        console.say(f"previewing `pulumi up -s {stack}`")
        previewed = preview(stack)
        changes = _check_changes(previewed, stack, allowed, is_quiet=json)
    quota = _check_quota(stack, env, previewed, is_quiet=json)
    if json:
        console.out_json({"parts": parts, "changes": changes, "quota": quota})
    typed = ["launch", "env", "check", "-s", stack, *(["--only", only] if only else [])]
    typed += [word for name in allowed for word in ("--allow-replace", name)]
    if changes and (refusal := find_refusal(changes, stack, typed)):
        raise refusal
    usable = all(each.ok for each in [*(parts or ()), *(quota or ())])
    return int(ExitCode.SUCCEEDED if usable else ExitCode.ENVIRONMENT)


def repair(*, stack: options.Stack, json: options.Json = False) -> None:
    """Mend a stack whose `pulumi up` was killed: locks of the dead, operations cut off."""
    from jobs.stacks.stack import repair as repair_stack

    done = repair_stack(stack)
    if json:
        console.out_json({"stack": stack, "done": done})
        return
    for line in done or [f"stack `{stack}` needs no repair"]:
        console.out(line)
    if done:
        console.say(f"next: uv run pulumi up -s {stack}")


def trust(
    *,
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", parser=Path, help="The folder of the project's Pulumi.yaml."),
    ],
) -> None:
    """Take a project of another user's; start the programs of another clone.

    As git's safe.directory: a project of another user, or one that others can write to, is not taken,
    and of another clone than this `launch` came with nothing is started, until it is named here. It
    ends when the folder or its Pulumi.yaml changes hands.
    """
    from jobs.host.project import trust_project
    from jobs.host.trust import owner_of

    root, file = trust_project(folder)
    console.say(f"trusted: {root}, of {owner_of(root)}; to undo it remove its entry in {file}")


def _check_parts(stack: str, env: Path | None, *, is_quiet: bool) -> list[PartCheck]:
    from jobs.stacks.reachability import check_environment

    parts = check_environment(options.open_environment(stack, env))
    if not is_quiet:
        rows = [[each.part, "ok" if each.ok else "FAILED", each.detail] for each in parts]
        console.out(console.table(["PART", "STATE", "DETAIL"], rows))
    return parts


def _check_changes(previewed: bytes, stack: str, allowed: list[str], *, is_quiet: bool) -> Changes:
    from jobs.stacks.changes import judge_preview

    changes = judge_preview(previewed, stack, allowed)
    for name in changes.idle_allowances:
        console.warn(f"--allow-replace {name} allows nothing: it is neither replaced nor deleted")
    if not is_quiet:
        _print_changes(changes)
    return changes


def _check_quota(
    stack: str, env: Path | None, previewed: bytes | None, *, is_quiet: bool
) -> list[QuotaCheck] | None:
    """What the quota holds of the clusters to come, or that are there; None where nobody tells."""
    from jobs.engines.azure_ml.quota import LIMITS_PAGE
    from jobs.engines.azure_ml.quota_check import check_clusters, declared_environment

    try:
        environment = (
            options.open_environment(stack, env)
            if previewed is None
            else declared_environment(previewed, stack)
        )
        if environment is None or environment.engine == "local":
            return []
        from jobs.engines.azure_ml.client import Wire

        checks = check_clusters(Wire(environment))
    except EnvironmentFailure as failure:
        console.say(f"the quota was not looked at: {failure.message}")
        if failure.hint:
            console.say(f"to have it looked at: {failure.hint}")
        return None
    if checks and not is_quiet:
        header = ["QUOTA", "STATE", "LIMIT", "USED", "NEEDED", "SHORT", "CLUSTERS"]
        rows = [
            [
                each.quota,
                "FAILED" if not each.ok else "ok" if not each.short else "short",
                *(str(number) for number in (each.limit, each.used, each.needed, each.short)),
                ", ".join(each.clusters),
            ]
            for each in checks
        ]
        console.out()
        console.out(console.table(header, rows, right=(2, 3, 4, 5)))
        if any(each.short for each in checks):
            console.say(f"vCPUs, with all nodes of the clusters; ask for more at {LIMITS_PAGE}")
    return checks


def _print_changes(changes: Changes) -> None:
    if changes.losses:
        header = ["NAME", "IN", "KIND", "CHANGE", "STATE", "COSTS"]
        rows = [_loss_row(each) for each in changes.losses]
        if all(each.within is None for each in changes.losses):
            header, *rows = [[cells[0], *cells[2:]] for cells in [header, *rows]]
        console.out(console.table(header, rows))
    if changes.is_cut_short:
        console.out("Pulumi stops at what is protected: what else would change is not known")
        return
    if changes.updated:
        console.out(f"changed in place: {_some(changes.updated, NUM_NAMES)}")
    if changes.created:
        console.out(f"new: {_some(changes.created, NUM_NAMES)}")
    if not (changes.losses or changes.updated or changes.created):
        console.out("no resource changes")


def _loss_row(loss: Loss) -> list[str]:
    kind = loss.type.rpartition(":")[2]
    state = "PROTECTED" if loss.is_protected else "allowed" if loss.is_allowed else "REFUSED"
    because = f" ({_some(loss.because, NUM_REASONS)})" if loss.because else ""
    return [loss.name, loss.within or "", kind, loss.change, state, loss.costs + because]


def _some(names: Sequence[str], limit: int) -> str:
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def _print(environment: Environment) -> None:
    storage = environment.storage
    pairs = [
        ("stack", environment.stack),
        ("engine", environment.engine),
        ("location", environment.location),
        ("workspace", environment.workspace.endpoint),
        ("storage", storage.blob_endpoint),
        ("containers", f"{storage.containers.data}, {storage.containers.runs}"),
    ]
    if environment.resource_group:
        pairs.insert(3, ("resource group", environment.resource_group))
    if storage.folder:
        pairs.append(("storage folder", storage.folder))
    if environment.registry:
        pairs.append(("registry", environment.registry.login_server))
    if environment.key_vault:
        pairs.append(("key vault", environment.key_vault.uri))
    pairs += [(f"image {name}", reference) for name, reference in environment.images.items()]
    console.out(console.fields(pairs))
    console.out()
    header = ["CLUSTER", "COMPUTE", "SIZE", "NODES", "CORES", "GPUS", "PROCESSES", "PRICE/NODE/H"]
    rows = [
        [
            name,
            cluster.compute,
            cluster.size,
            str(cluster.max_nodes)
            if cluster.min_nodes == cluster.max_nodes
            else f"{cluster.min_nodes}-{cluster.max_nodes}",
            str(cluster.cpus_per_node),
            str(cluster.gpus_per_node),
            str(cluster.processes_per_node),
            _price(cluster),
        ]
        for name, cluster in environment.clusters.items()
    ]
    console.out(console.table(header, rows, right=(3, 4, 5, 6, 7)))


def _price(cluster: Cluster) -> str:
    from jobs.stacks.cost import as_of_text, money_text

    price = cluster.price_per_node_hour
    if price is None:
        return "unknown"
    return "free" if price == 0 else money_text(price, cluster.currency) + as_of_text(cluster)


app = make_app(
    {
        "ls": list_environments,
        "show": show,
        "export": export,
        "import": env_import.import_environment,
        "check": check,
        "repair": repair,
        "trust": trust,
    }
)
