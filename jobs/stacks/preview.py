"""Run `pulumi preview` and decode its JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from jobs.host.project import project_root
from jobs.host.structs import prepared
from jobs.stacks.backend import stack_not_made
from jobs.stacks.pulumi_cli import last_words, pulumi_failed, start_pulumi

PREVIEW_TIMEOUT_S = 600


class ResourceState(Struct, frozen=True, kw_only=True, rename="camel"):
    """A resource as the engine has it, before a step or after it."""

    type: str = ""
    id: str = ""
    parent: str = ""
    custom: bool = False
    retain_on_delete: bool = False
    deleted_with: str = ""
    inputs: msgspec.Raw = msgspec.Raw(b"{}")
    outputs: msgspec.Raw = msgspec.Raw(b"{}")


class Step(Struct, frozen=True, kw_only=True, rename="camel"):
    """One operation on one resource."""

    op: str
    urn: str
    old_state: ResourceState | None = None
    new_state: ResourceState | None = None
    replace_reasons: tuple[str, ...] | None = None
    detailed_diff: dict[str, Any] | None = None


class Diagnostic(Struct, frozen=True, kw_only=True):
    """A message of the engine, of a provider or of the program."""

    severity: str
    message: str


class Preview(Struct, frozen=True, kw_only=True):
    """The part of a preview's JSON that `launch env check` reads."""

    steps: tuple[Step, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def preview(stack: str) -> bytes:
    """Run `pulumi preview` and return its JSON, also where it failed; changes nothing.

    Blocks for about a second, on Azure for a minute. Raises LaunchError (no such stack),
    EnvironmentFailure (Pulumi is missing or says nothing that can be read).
    """
    root = project_root()
    arguments = ["preview", "--json", "--show-sames", "-s", stack]
    result = start_pulumi(root, arguments, timeout_s=PREVIEW_TIMEOUT_S)
    if result.stdout.strip():
        return result.stdout
    said = last_words(result.stderr)
    if "no stack named" in said:
        raise stack_not_made(stack, root)
    raise pulumi_failed(said, command=f"pulumi preview -s {stack}")


def decode_preview(preview: bytes, stack: str) -> Preview:
    try:
        return msgspec.json.decode(preview, type=prepared(Preview))
    except msgspec.DecodeError as error:
        command = f"pulumi preview --json -s {stack}"
        message = f"`{command}` prints output that cannot be read: {error}"
        raise pulumi_failed(str(error), command=command, message=message) from error
