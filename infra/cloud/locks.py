"""Locks prod's storage, vault and registry against deletion by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization

from infra.cloud.resource_options import replaced_with

_NOTES = "Holds what cannot be made again. To delete it on purpose remove this lock first."


@dataclass(frozen=True, kw_only=True)
class LocksArgs:
    """Resources to lock, by short name and id; never the group, whose clusters could not scale."""

    targets: Mapping[str, str]
    depends_on: Sequence[pulumi.Resource]


class Locks(pulumi.ComponentResource):
    """Delete locks, one on each resource."""

    def __init__(
        self, name: str, args: LocksArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Locks", name, None, opts)
        self.locks = {
            target: authorization.ManagementLockByScope(
                f"{name}-{target}",
                lock_name="trainyard",
                scope=target_id,
                level="CanNotDelete",
                notes=_NOTES,
                opts=replaced_with(self, *args.depends_on),
            )
            for target, target_id in args.targets.items()
        }
        self.register_outputs({"locked": sorted(args.targets)})
