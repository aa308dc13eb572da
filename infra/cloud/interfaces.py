"""Attaches to a part of a stack what it may have: private endpoints, logs, a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from infra.cloud.locks import Locks
from infra.cloud.monitoring import Monitoring, diagnose
from infra.cloud.network import Connection, Network
from infra.cloud.zones import EndpointGroup


@dataclass(frozen=True, kw_only=True)
class Interfaces:
    """Network, logs and locks of a stack; each is None where its stage has none.

    Azure Verified Modules call these a module's interfaces. A component attaches them to its own
    resource under keys, which are parts of names in Pulumi's state: a changed key replaces.
    """

    name: str
    platform: pulumi.Resource
    network: Network | None
    monitoring: Monitoring | None
    locks: Locks | None

    def connect(
        self,
        target_id: str,
        endpoints: Mapping[str, EndpointGroup],
        *,
        after: Sequence[pulumi.Resource],
        is_existing: bool = False,
    ) -> dict[EndpointGroup, Connection]:
        """Give a resource private endpoints: `endpoints` says for which of its parts, by their keys.

        An existing resource whose zones exist, too, gets none: a second endpoint would take the names
        of its own. Endpoints of one resource are made one after the other: a storage account refuses
        the second with StorageAccountOperationInProgress while the first is being made.
        """
        made: dict[EndpointGroup, Connection] = {}
        if self.network is None:
            return made
        for key, group in endpoints.items():
            if is_existing and not self.network.has_zones(group):
                continue
            before = [each.names for each in made.values()]
            made[group] = self.network.connect(key, target_id, group, [*before, *after])
        return made

    def log(
        self,
        key: str,
        target_id: str,
        categories: Sequence[str],
        *,
        after: Sequence[pulumi.Resource],
    ) -> None:
        """Send these categories of a resource's logs to Log Analytics."""
        if self.monitoring:
            diagnose(
                f"{self.name}-{key}-diagnostics",
                target_id,
                categories,
                monitoring=self.monitoring,
                depends_on=after,
                parent=self.platform,
            )

    def lock(self, key: str, target_id: str, *, after: Sequence[pulumi.Resource]) -> None:
        """Keep a resource from being deleted by hand."""
        if self.locks:
            self.locks.add(key, target_id, after)
