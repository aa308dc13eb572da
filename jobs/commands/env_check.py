"""`launch env check`: test access to each part, list what `pulumi up` would destroy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jobs.commands import completers, options
from jobs.contracts.errors import EnvironmentFailure, ExitCode, LaunchError
from jobs.host import console

if TYPE_CHECKING:
    from jobs.engines.azure_ml.quota import QuotaCheck
    from jobs.stacks.changes import Changes
    from jobs.stacks.reachability import PartCheck


def check(
    *,
    stack: options.Stack,
    env: options.EnvFile = None,
    only: Annotated[
        Literal["parts", "changes"] | None,
        typer.Option(help="Run one half: `parts` tests access, `changes` previews `pulumi up`."),
    ] = None,
    allow_replace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Cluster or resource that may be replaced with its content. May be repeated.",
            autocompletion=completers.clusters,
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Test access to each part, and list what `pulumi up` would destroy.

    On Azure it asks signed in: workspace, default datastores, network, endpoints, roles, clusters.
    Before the first `pulumi up` it asks whether Azure offers the region and the sizes.

    Exit code 3: a resource that --allow-replace does not name would be replaced or deleted. Exit
    code 1: no such change, but a part cannot be reached, Azure does not offer one, the quota leaves
    a cluster no node, or the preview failed.
    """
    from jobs.stacks.changes import find_refusal
    from jobs.stacks.preview import preview

    allowed = allow_replace or []
    if env is not None and (only == "changes" or allowed):
        message = f"{env} is a copy of a stack's outputs; only a stack can be previewed"
        raise LaunchError(message, hint="launch env check -s STACK")
    if only == "parts" and allowed:
        message = "--allow-replace has no effect with --only parts, which previews no changes"
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
    offers, quota = _check_limits(stack, env, previewed, is_quiet=json)
    if json:
        console.out_json({"parts": parts, "changes": changes, "offers": offers, "quota": quota})
    typed = ["launch", "env", "check", "-s", stack, *(["--only", only] if only else [])]
    typed += [word for name in allowed for word in ("--allow-replace", name)]
    if changes and (refusal := find_refusal(changes, stack, typed)):
        raise refusal
    usable = all(each.ok or not each.known for each in [*(parts or ()), *(offers or ())])
    enough = all(each.ok for each in quota or ())
    return int(ExitCode.SUCCEEDED if usable and enough else ExitCode.ENVIRONMENT)


def _check_parts(stack: str, env: Path | None, *, is_quiet: bool) -> list[PartCheck]:
    from jobs.stacks.environment_text import parts_table
    from jobs.stacks.reachability import check_environment

    environment = options.open_environment(stack, env)
    parts = check_environment(environment)
    if not environment.workspace.is_folder:
        from jobs.engines.azure_ml.client import ArmClient
        from jobs.engines.azure_ml.deployed import check_deployed
        from jobs.stacks.grants import recorded_grants

        grants = partial(recorded_grants, stack) if env is None else None
        # What was asked signed in says more than what was asked without.
        signed_in = check_deployed(ArmClient(environment), grants)
        parts = list({each.part: each for each in [*parts, *signed_in]}.values())
    if not is_quiet:
        console.out(parts_table(parts))
    return parts


def _check_changes(previewed: bytes, stack: str, allowed: list[str], *, is_quiet: bool) -> Changes:
    from jobs.stacks.changes import judge_preview
    from jobs.stacks.changes_text import changes_text

    changes = judge_preview(previewed, stack, allowed)
    for name in changes.idle_allowances:
        console.warn(f"--allow-replace {name} has no effect: it is neither replaced nor deleted")
    if not is_quiet:
        console.out(changes_text(changes))
    return changes


def _check_limits(
    stack: str, env: Path | None, previewed: bytes | None, *, is_quiet: bool
) -> tuple[list[PartCheck] | None, list[QuotaCheck] | None]:
    """Check what Azure offers a previewed stack, and the quota of its clusters, else of those there.

    The offers are None where nothing was previewed for Azure, the quota where Azure did not answer.
    """
    from jobs.engines.azure_ml.client import ArmClient
    from jobs.engines.azure_ml.cluster_view import quota_table, quotas_of
    from jobs.engines.azure_ml.declared import read_declared
    from jobs.engines.azure_ml.offers import check_offers
    from jobs.engines.azure_ml.quota import LIMITS_PAGE
    from jobs.engines.azure_ml.sizes import read_sizes
    from jobs.stacks.environment_text import parts_table

    declared = None if previewed is None else read_declared(previewed, stack)
    if previewed is not None and declared is None:
        return None, []
    offers = None
    try:
        if declared is None:
            checks = quotas_of(options.open_environment(stack, env))
        else:
            client = ArmClient(declared.environment)
            offers = check_offers(client, declared)
            if offers and not is_quiet:
                console.out()
                console.out(parts_table(offers))
            checks = quotas_of(declared.with_clusters(read_sizes(client)))
    except EnvironmentFailure as failure:
        hint = f"\nto check it: {failure.hint}" if failure.hint else ""
        console.say(f"the quota was not checked: {failure.message}{hint}")
        return offers, None
    if checks and not is_quiet:
        console.out()
        console.out(quota_table(checks))
        if any(each.short for each in checks):
            console.say(f"vCPUs, with all nodes of the clusters; ask for more at {LIMITS_PAGE}")
    return offers, checks
