"""`launch prune`: remove old runs and cached files that nothing uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.commands import options, quantities
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.errors import LaunchError
    from jobs.contracts.spec import Environment
    from jobs.host.disk import Leftover
    from jobs.launching.prune import Age


def prune(
    *,
    older: Annotated[
        float,
        typer.Option(
            metavar="DURATION",
            parser=quantities.seconds,
            show_default=False,
            help="Minimum age: since the end of a run, the last use of a file; 30d by default.",
        ),
    ] = 30 * 86400.0,
    keep: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=quantities.whole_number(at_least=0),
            help="Number of the newest runs to keep, whatever their age.",
        ),
    ] = 5,
    datasets: Annotated[
        bool,
        typer.Option(
            "--datasets",
            help="Also remove old versions of datasets from a local stack's store. The newest of each "
            "stay, and those that a remaining run or a registered model needs.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed; remove nothing.")
    ] = False,
    yes: options.Yes = False,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Remove old runs and cached files that nothing uses.

    Leaves every run that is not over, is kept (`launch keep`) or was resumed by one that stays, and
    every file that a run, an image or a process needs.
    """
    from jobs.host.progress import step
    from jobs.launching.prune import Age

    environment = options.open_environment(stack, env)
    with step("looking for runs and files that nothing uses"):
        found = _find(environment, Age(older_s=older, keep=keep), with_datasets=datasets)
    going = [each for each in found if each.stays is None]
    sizes = _sizes(found)
    num_bytes = _freed(going)
    if not json:
        _show(found, sizes)
    is_removing = bool(going) and not dry_run
    question = f"Remove {console.count_text(len(going), 'item')}, {console.size_text(num_bytes)}?"
    if is_removing and not yes and not console.confirm(question):
        console.say("nothing was removed")
        return
    failed, left = _take(going) if is_removing else ([], [])
    for each, reason in left:
        console.warn(f"{each.kind} {each.name} stays: {reason}")
    num_bytes -= sum(sizes[id(each)] for each, _ in [*failed, *left])
    if json:
        console.out_json(_told(found, sizes, num_bytes, is_removed=is_removing))
    elif is_removing:
        console.say(f"{console.size_text(num_bytes)} freed")
    elif dry_run:
        console.say(f"{console.size_text(num_bytes)} would be freed; nothing was removed")
    errors = [error for _, error in failed]
    for error in errors[1:]:
        console.report_error(error)
    if errors:
        raise errors[0]


def _find(environment: Environment, age: Age, *, with_datasets: bool) -> list[Leftover]:
    from jobs.launching import prune as finders

    engine = options.open_engine(environment)
    damaged: list[LaunchError] = []
    found = finders.find_runs(engine, age, damaged)
    going = {each.name for each in found if each.stays is None}
    found += finders.find_inputs(engine, age, going, damaged)
    found += finders.find_blocks(engine, age)
    found += finders.find_digests(age)
    found += finders.find_built(age)
    if with_datasets:
        from jobs.launching.prune_datasets import find_datasets

        found += find_datasets(engine, age, going, damaged)
    console.warn_damaged(damaged)
    return found


def _take(
    going: Iterable[Leftover],
) -> tuple[list[tuple[Leftover, LaunchError]], list[tuple[Leftover, str]]]:
    """Remove one after the other: runs before what they read.

    Gives what could not be removed with the errors, and what stays after all with the reasons.
    """
    from jobs.contracts.errors import LaunchError

    failed: list[tuple[Leftover, LaunchError]] = []
    left: list[tuple[Leftover, str]] = []
    for each in going:
        try:
            if (reason := each.take()) is not None:
                left.append((each, reason))
        except LaunchError as error:
            failed.append((each, error))
    return failed, left


def _sizes(found: Sequence[Leftover]) -> dict[int, int]:
    return {id(each): each.bytes for each in found}


def _freed(going: Sequence[Leftover]) -> int:
    """Count what all of it frees together: two of them may share files."""
    from jobs.host.disk import num_freed

    here = num_freed([path for each in going for path in each.paths])
    return here + sum(each.num_bytes or 0 for each in going)


def _show(found: Sequence[Leftover], sizes: dict[int, int]) -> None:
    going = [each for each in found if each.stays is None]
    if going:
        rows = [[each.kind, each.name, console.size_text(sizes[id(each)])] for each in going]
        console.out(console.table(["GOES", "NAME", "SIZE"], rows, right=(2,)))
        console.out()
    else:
        console.say("nothing to remove")
    counts = Counter((each.kind, each.stays) for each in found if each.stays is not None)
    rows: list[list[str]] = []
    for (kind, reason), number in counts.items():
        taken = sum(sizes[id(each)] for each in found if (each.kind, each.stays) == (kind, reason))
        rows.append([kind, str(number), console.size_text(taken), reason or ""])
    if rows:
        console.out(console.table(["STAYS", "COUNT", "SIZE", "BECAUSE"], rows, right=(1, 2)))


def _told(
    found: Sequence[Leftover], sizes: dict[int, int], num_bytes: int, *, is_removed: bool
) -> dict[str, Any]:
    def told(each: Leftover) -> dict[str, Any]:
        return {"kind": each.kind, "name": each.name, "bytes": sizes[id(each)]}

    return {
        "removed": is_removed,
        "bytes": num_bytes,
        "goes": [told(each) for each in found if each.stays is None],
        "stays": [{**told(each), "reason": each.stays} for each in found if each.stays is not None],
    }


app = make_app({"prune": prune})
