"""Reads the environment of a stack or of a file, and lists the stacks.

What Pulumi said is kept under .trainyard/cache, so that most commands start none.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure, Refused
from jobs.contracts.spec import Environment
from jobs.host.environment_file import (
    Cached,
    cache_file,
    parse_environment,
    read_cache,
    read_environment,
    stack_names,
    write_cache,
)
from jobs.host.project import project_root
from jobs.stacks.backend import (
    backend_url,
    found_state,
    read_record,
    stack_not_made,
    stack_not_up,
    state_file,
    unknown_stack,
)
from jobs.stacks.pulumi_cli import ANSWER_TIMEOUT_S, last_words, pulumi_failed, start_pulumi

OUTPUT = "environment"
# Where the backend is not a folder, nothing tells us of a change.
MAX_CACHE_AGE_S = 600


def load_environment(
    stack: str, env_file: Path | None = None, *, refresh: bool = False
) -> Environment:
    """Read the environment of a stack, or of the file where one is given.

    `refresh` leaves the cache aside. May start Pulumi and then blocks for about a second.
    Raises LaunchError (no project, no stack up, another schema, damaged), Refused (the project is
    not trusted), EnvironmentFailure (Pulumi is missing or failed).
    """
    if env_file is not None:
        return read_environment(env_file)
    root = project_root()
    state = found_state(root, stack)
    stamp = _stamp(root, state)
    cache = cache_file(root, stack)
    kept = None if refresh else read_cache(cache)
    if kept is not None and _is_valid(kept, stamp, is_watched=state is not None):
        return parse_environment(bytes(kept.environment), f"stack `{stack}`")
    try:
        text = _read_output(root, stack)
    except (EnvironmentFailure, Refused) as error:
        if (root / f"Pulumi.{stack}.yaml").exists():
            raise
        raise unknown_stack(stack, root) from error
    environment = parse_environment(text, f"stack `{stack}`")
    write_cache(cache, stamp, text)
    return environment


def list_stacks() -> list[tuple[str, bool | None]]:
    """List the stacks that have settings, and whether each is up; None where no folder tells."""
    root = project_root()
    names = stack_names(root)
    states = [state_file(root, name) for name in names]
    return [
        (name, None if state is None else _has_resources(state))
        for name, state in zip(names, states, strict=True)
    ]


def _stamp(root: Path, state: Path | None) -> str:
    """Stamp what is read now: by the backend, and by the record where it is a file."""
    if state is not None:
        status = state.stat()
        return f"{str(state)!a}-{status.st_mtime_ns}-{status.st_size}"
    # An address may hold a secret. Only here: it is a slow import, and a folder's path has none.
    from hashlib import sha256

    return sha256(os.fsencode(backend_url(root))).hexdigest()[:16]


def _is_valid(cached: Cached, stamp: str, *, is_watched: bool) -> bool:
    is_young = 0 <= time.time() - cached.read_s < MAX_CACHE_AGE_S
    return cached.stamp == stamp and (is_watched or is_young)


def _read_output(root: Path, stack: str) -> bytes:
    result = start_pulumi(
        root, ["stack", "output", OUTPUT, "--json", "-s", stack], timeout_s=ANSWER_TIMEOUT_S
    )
    if result.returncode == 0:
        return result.stdout
    said = last_words(result.stderr)
    if "no stack named" in said:
        raise stack_not_made(stack, root)
    if "does not have output property" in said:
        raise stack_not_up(stack)
    raise pulumi_failed(said, command=f"pulumi stack output -s {stack}")


def _has_resources(state: Path) -> bool:
    return state.exists() and bool(read_record(state).get("resources"))
