"""`launch env`: list, show, export, check and repair environments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobs import console
from jobs.command_parser import CommandParser
from jobs.commands import options
from jobs.errors import ExitCode

if TYPE_CHECKING:
    from jobs.spec import Environment


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    listed = parser.add_command(
        "ls",
        "List the stacks that have settings, and which of them are up on this machine.",
        list_environments,
    )
    options.add_json(listed)

    shown = parser.add_command(
        "show", "Show an environment: store, workspace, clusters, images.", show
    )
    options.add_environment(shown)
    _add_refresh(shown)
    options.add_json(shown)

    exported = parser.add_command(
        "export",
        "Write an environment for somebody without Pulumi, who uses it by `--env FILE`.",
        export,
    )
    options.add_stack(exported)
    options.add_output(exported, "Where to; stdout where not given.")
    _add_refresh(exported)

    checked = parser.add_command(
        "check",
        "Look whether each part can be used from here; ends with 1 where one cannot.",
        check,
    )
    options.add_environment(checked)
    options.add_json(checked)

    repaired = parser.add_command(
        "repair",
        "Mend a stack whose `pulumi up` was killed: locks of the dead, operations cut off.",
        repair,
    )
    options.add_stack(repaired)
    options.add_json(repaired)


def _add_refresh(parser: CommandParser) -> None:
    parser.add_argument(
        "--refresh", action="store_true", help="Ask Pulumi, whatever the cache has."
    )


def list_environments(*, json: bool) -> None:
    """List the stacks that have settings, and which of them are up on this machine."""
    from jobs.stack import list_stacks

    stacks = list_stacks()
    if json:
        console.out_json([{"stack": name, "up": up} for name, up in stacks])
        return
    rows = [[name, {True: "yes", False: "no", None: "unknown"}[up]] for name, up in stacks]
    console.out(console.table(["STACK", "UP"], rows))


def show(*, stack: str, env: Path | None, refresh: bool, json: bool) -> None:
    """Show an environment: store, workspace, clusters, images."""
    from jobs.stack import load_environment

    environment = load_environment(stack, env, refresh=refresh)
    if json:
        console.out_json(environment)
    else:
        _print(environment)


def export(*, stack: str, output: Path | None, refresh: bool) -> None:
    """Write an environment for somebody without Pulumi, who uses it by `--env FILE`."""
    from jobs.stack import load_environment, write_environment

    environment = load_environment(stack, refresh=refresh)
    if output is None:
        console.out_json(environment)
        return
    write_environment(environment, output)
    console.say(f"wrote {output}; use it by `launch ... --env {output}`")


def check(*, stack: str, env: Path | None, json: bool) -> int:
    """Look whether each part can be used from here; ends with 1 where one cannot."""
    from jobs.reachability import check_environment

    parts = check_environment(options.open_environment(stack, env))
    if json:
        console.out_json(parts)
    else:
        rows = [[each.part, "ok" if each.ok else "FAILED", each.detail] for each in parts]
        console.out(console.table(["PART", "STATE", "DETAIL"], rows))
    every = all(each.ok for each in parts)
    return int(ExitCode.SUCCEEDED if every else ExitCode.ENVIRONMENT)


def repair(*, stack: str, json: bool) -> None:
    """Mend a stack whose `pulumi up` was killed: locks of the dead, operations cut off."""
    from jobs.stack import repair as repair_stack

    done = repair_stack(stack)
    if json:
        console.out_json({"stack": stack, "done": done})
        return
    for line in done or [f"stack `{stack}` needs no repair"]:
        console.out(line)
    if done:
        console.say(f"next: uv run pulumi up -s {stack}")


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
            _price(cluster.price_per_node_hour, cluster.currency),
        ]
        for name, cluster in environment.clusters.items()
    ]
    console.out(console.table(header, rows, right=(3, 4, 5, 6, 7)))


def _price(price: float | None, currency: str | None) -> str:
    if price is None:
        return "unknown"
    return "free" if price == 0 else f"{price:.2f} {currency or ''}".rstrip()
