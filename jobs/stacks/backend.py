"""Finds and reads the record of a stack, where Pulumi's backend is a folder of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.host.environment_file import stack_names
from jobs.host.project import NAME
from jobs.host.untrusted import read_json

LOCAL_STACK = "local"
PULUMI_HOME = ".trainyard/pulumi-home"


def state_file(root: Path, stack: str) -> Path | None:
    """Find the stack's record where the backend is a folder; None for a service or a bucket."""
    if stack == LOCAL_STACK:
        backend = root / ".trainyard" / "state"
    else:
        url = os.environ.get("PULUMI_BACKEND_URL", "")
        if not url.startswith("file://"):
            return None
        # Pulumi is started in the project's root, and finds a relative folder from there.
        backend = root / Path(url.removeprefix("file://")).expanduser()
    return backend / ".pulumi" / "stacks" / NAME / f"{stack}.json"


def backend_url(root: Path) -> str:
    """Name the backend that is no folder, as far as this machine tells; empty without a login."""
    url = os.environ.get("PULUMI_BACKEND_URL", "")
    if url:
        # An `azblob://` that names no account means that of the variable.
        return f"{url} {os.environ.get('AZURE_STORAGE_ACCOUNT', '')}"
    folder = os.environ.get("PULUMI_CREDENTIALS_PATH") or root / PULUMI_HOME
    try:
        return read_json(Path(folder) / "credentials.json", _Login).current
    except (OSError, msgspec.DecodeError):
        return ""


class _Login(msgspec.Struct, frozen=True):
    """Pulumi's `credentials.json`, of which no token is read."""

    current: str = ""


def locks_folder(state: Path) -> Path:
    return state.parents[2] / "locks" / "organization" / NAME / state.stem


def read_record(state: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(state.read_bytes())["checkpoint"]["latest"] or {}
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        message = f"the record of the stack, {state}, is damaged: {error}"
        raise EnvironmentFailure(message, hint=f"{state}.bak is the previous record") from error


def found_state(root: Path, stack: str) -> Path | None:
    """Find the stack's state file; None where the backend is no folder. Raises for no such stack."""
    state = state_file(root, stack)
    if state is not None and not state.exists():
        raise stack_not_made(stack, root)
    return state


def unknown_stack(stack: str, root: Path) -> LaunchError:
    from difflib import get_close_matches

    known = stack_names(root)
    message = f"there is no stack `{stack}`: no Pulumi.{stack}.yaml in {root}"
    near = get_close_matches(stack, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"there is {', '.join(known) or 'none'}"
    return LaunchError(message, hint=hint)


def stack_not_made(stack: str, root: Path) -> LaunchError:
    """Give the error for a stack that Pulumi does not know; set-up makes the local one."""
    if stack == LOCAL_STACK:
        return stack_not_up(stack)
    if stack not in stack_names(root):
        return unknown_stack(stack, root)
    message = f"stack `{stack}` was never made: Pulumi.{stack}.yaml has its settings, no more"
    hint = f"uv run pulumi stack init {stack}, then pulumi up -s {stack} (docs/azure.md)"
    return LaunchError(message, hint=hint)


def stack_not_up(stack: str) -> LaunchError:
    message = f"stack `{stack}` is not up"
    return LaunchError(message, hint=f"uv run pulumi up -s {stack}")
