"""Reads the role assignments that a stack has made from Pulumi's record of it."""

from __future__ import annotations

from msgspec import Struct

from jobs.host.project import project_root
from jobs.host.untrusted import parse_rows
from jobs.stacks.backend import found_state
from jobs.stacks.pulumi_cli import recorded


class Grant(Struct, frozen=True, kw_only=True):
    """A role of one principal on one scope; `name` is the resource's in the stack."""

    name: str
    scope: str
    role_id: str
    principal_id: str


class _Inputs(Struct, frozen=True, kw_only=True, rename="camel"):
    scope: str
    role_definition_id: str
    principal_id: str


class _Row(Struct, frozen=True, kw_only=True):
    """A role assignment in the record; other resources lack these inputs."""

    urn: str
    type: str
    inputs: _Inputs
    delete: bool = False


def recorded_grants(stack: str) -> list[Grant]:
    """List the roles that the stack's last `pulumi up` gave, by name.

    Blocks for about a second where the record is on no folder of this machine. Raises LaunchError
    (no such stack), EnvironmentFailure (Pulumi failed, or the record is damaged).
    """
    root = project_root()
    state = found_state(root, stack)
    record = recorded(root, stack, state)
    found = [
        Grant(
            name=row.urn.rpartition("::")[2],
            scope=row.inputs.scope,
            role_id=row.inputs.role_definition_id.rpartition("/")[2].lower(),
            principal_id=row.inputs.principal_id.lower(),
        )
        for row in parse_rows(record.get("resources") or (), _Row)
        if row.type.endswith(":RoleAssignment") and not row.delete
    ]
    return sorted(found, key=lambda each: each.name)
