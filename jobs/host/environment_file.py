"""Reads and writes environments: in files that people hand on, and as a stack was last read."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import ENVIRONMENT_SCHEMA, Environment
from jobs.host.files import write_file
from jobs.host.private import make_folder
from jobs.host.project import project_root
from jobs.host.untrusted import parse_json, read_json, read_small

CACHE_FOLDER = ".trainyard/cache"
MOST_BYTES = 1 << 20  # of an environment's file


def known_environment(stack: str) -> Environment | None:
    """Give the cached environment of a stack of the project, of any age; starts nothing.

    Raises LaunchError where there is no project, Refused where it is not trusted.
    """
    root = project_root()
    if stack not in stack_names(root):
        return None
    kept = read_cache(cache_file(root, stack))
    return None if kept is None else parse_environment(bytes(kept.environment), f"stack `{stack}`")


def read_environment(path: Path) -> Environment:
    """Read an environment from a file that `launch env export` wrote."""
    hint = "`launch env export --output FILE` writes one"
    try:
        text = read_small(path, MOST_BYTES)
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise LaunchError(message, hint=hint) from error
    return parse_environment(text, str(path))


def parse_environment(text: bytes, source: str) -> Environment:
    """Check and decode; `source` names where it came from in the message of an error."""
    try:
        schema = parse_json(text, _SchemaOnly).schema
    except msgspec.DecodeError as error:
        message = f"the environment of {source} is damaged: {error}"
        raise LaunchError(message, hint="export it again, or `pulumi up` again") from error
    if schema != ENVIRONMENT_SCHEMA:
        message = (
            f"the environment of {source} has schema {schema}, "
            f"this launch reads schema {ENVIRONMENT_SCHEMA}"
        )
        newer = isinstance(schema, int) and schema > ENVIRONMENT_SCHEMA
        hint = "update launch (`git pull`, `make setup`)" if newer else "`pulumi up` again"
        raise LaunchError(message, hint=hint)
    try:
        return parse_json(text, Environment)
    except msgspec.DecodeError as error:
        message = f"the environment of {source} is invalid: {error}"
        raise LaunchError(message, hint="export it again, or `pulumi up` again") from error


def write_environment(environment: Environment, path: Path) -> None:
    """Write a file that `read_environment` takes."""
    text = msgspec.json.format(msgspec.json.encode(environment), indent=2)
    try:
        path.write_bytes(text + b"\n")
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise LaunchError(message, hint="choose another --output FILE") from error


def stack_names(root: Path) -> list[str]:
    return sorted(
        path.name.removeprefix("Pulumi.").removesuffix(".yaml")
        for path in root.glob("Pulumi.*.yaml")
    )


def cache_file(root: Path, stack: str) -> Path:
    return root / CACHE_FOLDER / f"environment-{stack}.json"


def read_cache(path: Path) -> Cached | None:
    try:
        return read_json(path, Cached)
    except (OSError, msgspec.DecodeError):
        return None


def write_cache(path: Path, stamp: str, text: bytes) -> None:
    cached = Cached(stamp=stamp, read_s=time.time(), environment=msgspec.Raw(text))
    # A cache that cannot be written makes the next command slower, no more.
    with suppress(OSError):
        make_folder(path.parent)
        write_file(path, msgspec.json.encode(cached), is_synced=False)


class _SchemaOnly(msgspec.Struct, frozen=True):
    schema: Any


class Cached(msgspec.Struct, frozen=True, kw_only=True):
    stamp: str
    read_s: float
    environment: msgspec.Raw
