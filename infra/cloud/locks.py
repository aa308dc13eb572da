"""Locks prod's storage, vault and registry against deletion by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_azure_native import authorization

from infra.cloud.resource_options import replaced_with

_NOTES = "Holds what cannot be made again. To delete it on purpose remove this lock first."


class Locks(pulumi.ComponentResource):
    """Delete locks, one on each resource; never on the group, whose clusters could not scale."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:cloud:Locks", name, None, opts)
        self._name = name
        self.register_outputs({})

    def add(self, key: str, target_id: str, depends_on: Sequence[pulumi.Resource]) -> None:
        """Lock a resource, and all that is in it."""
        authorization.ManagementLockByScope(
            f"{self._name}-{key}",
            lock_name="trainyard",
            scope=target_id,
            level="CanNotDelete",
            notes=_NOTES,
            opts=replaced_with(self, *depends_on),
        )
