"""`launch bench`: measure a job at several sizes, and report how it scales."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import job_options, options
from jobs.commands.quantities import time_limit
from jobs.commands.usage import make_app
from jobs.contracts.errors import ExitCode, LaunchError

if TYPE_CHECKING:
    from jobs.commands import planning
    from jobs.runs.scaling import Size

MOST_SIZES, MOST_NODES, LONGEST = 32, 100_000, 1000
MEASURE_S = 60.0

Nodes = Annotated[
    str, typer.Option("--nodes", metavar="N,N...", help="Numbers of nodes to measure, e.g. 1,2,4.")
]
Processes = Annotated[
    str | None,
    typer.Option(
        "--processes-per-node",
        metavar="N,N...",
        help="Ranks per node to measure, with each number of nodes (default: those of the job).",
    ),
]
Strong = Annotated[
    str | None,
    typer.Option(
        "--strong",
        metavar="ARGUMENT",
        help="Also measure strong scaling: divide this argument (a batch of one rank) so that "
        "the batch of all ranks stays.",
    ),
]
Measure = Annotated[
    float,
    typer.Option(
        "--measure",
        metavar="TIME",
        parser=time_limit,
        help="Time for which a steady rate is measured; then a run is ended (default: 60s).",
        show_default=False,
    ),
]
Into = Annotated[
    Path | None,
    typer.Option(
        "--into", metavar="DIR", parser=Path, help="Folder of the report (default: bench-JOB)."
    ),
]


def bench(
    *,
    job: job_options.Job,
    arguments: job_options.Arguments = None,
    nodes: Nodes = "1",
    processes_per_node: Processes = None,
    strong: Strong = None,
    measure: Measure = MEASURE_S,
    into: Into = None,
    cluster: job_options.ClusterName = None,
    priority: job_options.Priority = None,
    overrides: job_options.Overrides = None,
    yes: job_options.AskNothing = False,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> int:
    """Measure a job at several sizes, and report how it scales.

    Sizes run one after the other. Each run is ended once its rate was steady for as long as --measure says. What was measured is kept in
    the report's folder: the same command goes on where it was ended.
    """
    from jobs.commands.planning import Asked, plan_asked
    from jobs.host import console
    from jobs.launching.bench import Bench, Planned, Wish, say_scaled, sizes_of
    from jobs.launching.plan import secret_folders
    from jobs.launching.secrets import find_secrets

    counts = _numbers(nodes, "--nodes")
    processes = _numbers(processes_per_node, "--processes-per-node") if processes_per_node else []

    def planned(size: Size | None, batch: int | None) -> planning.Planned:
        num_nodes = str(size.nodes if size else min(counts))
        ranks = size.processes_per_node if size else min(processes, default=None)
        values = job_options.job_values(num_nodes, str(ranks) if ranks else None, cluster, priority)
        words, sets = list(arguments or ()), list(overrides or ())
        if batch is not None:
            words, sets = _with_batch(words, sets, strong or "", batch)
        return plan_asked(
            Asked(
                job=job,
                arguments=words,
                overrides=sets,
                values=values,
                deadline_s=None,
                budget=None,
                stack=stack,
                env=env,
                is_again=size is not None,
            )
        )

    first = planned(None, None)
    spec, engine = first.plan.spec, first.engine
    sizes = sizes_of(counts, processes or [spec.processes_per_node], is_strong=strong is not None)
    if len(sizes) > MOST_SIZES:
        message = f"{len(sizes)} sizes are more than the {MOST_SIZES} that are measured at once"
        raise LaunchError(message, hint="fewer numbers in --nodes or --processes-per-node")
    batch = _batch_of(spec.command, strong) if strong else 0
    plans = [
        Planned(
            size=size,
            plan=planned(
                size, _share(batch, sizes[0], size) if size.scaling == "strong" else None
            ).plan,
        )
        for size in sizes
    ]
    secrets = find_secrets(spec, engine.environment, secret_folders(first.folder))
    wish = Wish(
        folder=into or Path(f"bench-{spec.name}"),
        measure_s=measure,
        yes=yes,
        stack=options.stack_words(stack, env),
    )
    found = Bench(plans, secrets, engine, wish).run()
    if json:
        console.out_json(found)
    else:
        say_scaled(found)
    is_whole = all(row.point.rate for row in found.rows)
    return int(ExitCode.SUCCEEDED if is_whole else ExitCode.FAILED)


def _numbers(text: str, option: str) -> list[int]:
    numbers = [int(each) if each.isascii() and each.isdecimal() else 0 for each in text.split(",")]
    if not all(0 < each <= MOST_NODES for each in numbers) or len(text) > LONGEST:
        message = f"{option} `{text[:60]}` has to be numbers with commas between, each 1 or more"
        raise LaunchError(message, hint=f"{option} 1,2,4")
    return sorted(set(numbers))


def _batch_of(command: Sequence[str], argument: str) -> int:
    """Read the value of an argument of the job's command; raises LaunchError where it has none."""
    name = _option(argument)
    for word, following in pairwise([*command, ""]):
        value = following if word == name else word.removeprefix(f"{name}=")
        if (word == name or value != word) and value.isdecimal():
            return int(value)
    message = f"--strong {argument}: the job's command gives no number for {name}"
    raise LaunchError(message, hint=f"--set args.{argument.lstrip('-')}=64, or another argument")


def _share(batch: int, first: Size, size: Size) -> int:
    """Divide the batch of the smallest size by what a size has more ranks; raises LaunchError."""
    share, rest = divmod(batch * first.ranks, size.ranks)
    if rest or not share:
        message = f"a batch of {batch * first.ranks} cannot be divided by {size.ranks} ranks"
        raise LaunchError(message, hint="a larger batch, or sizes that divide it")
    return share


def _with_batch(
    words: list[str], overrides: list[str], argument: str, batch: int
) -> tuple[list[str], list[str]]:
    """Set the argument where it was typed, else as a key of the job's `args`."""
    name = _option(argument)
    for at, word in enumerate(words):
        if word == name:
            return [*words[: at + 1], str(batch), *words[at + 2 :]], overrides
        if word.startswith(f"{name}="):
            return [*words[:at], f"{name}={batch}", *words[at + 1 :]], overrides
    return words, [*overrides, f"args.{argument.lstrip('-')}={batch}"]


def _option(argument: str) -> str:
    return f"--{argument.lstrip('-')}"


app = make_app({"bench": bench})
