"""Declares the container registry, which only identities pull from and push to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_azure_native import containerregistry

from infra.cloud.access import Scope
from infra.cloud.context import Context
from infra.cloud.interfaces import Interfaces
from infra.cloud.monitoring import REGISTRY_CATEGORIES
from infra.cloud.resource_options import replaced_with

if TYPE_CHECKING:
    from pulumi_azure_native.resources import ResourceGroup

# Manifests that no tag names any more are deleted after so many days: an image that a stack pins
# by digest needs a tag of its own.
_UNTAGGED_DAYS = 15


@dataclass(frozen=True, kw_only=True)
class RegistryArgs:
    """The group that the registry is made in."""

    context: Context
    resource_group: ResourceGroup
    interfaces: Interfaces


class Registry(pulumi.ComponentResource):
    """One registry for every image of the stack.

    One that is there already keeps its own settings, logs and lock.
    """

    def __init__(
        self, name: str, args: RegistryArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Registry", name, None, opts)
        context, interfaces = args.context, args.interfaces
        existing = context.settings.existing.registry
        self.registry_id = existing or context.names.id_of(
            "Microsoft.ContainerRegistry/registries", context.names.registry
        )
        self.registry = (
            containerregistry.Registry.get(
                f"{name}-registry", existing, opts=pulumi.ResourceOptions(parent=self)
            )
            if existing
            else self._make(name, args)
        )
        after: list[pulumi.Resource] = [self.registry]
        if not existing:
            interfaces.log("registry", self.registry_id, REGISTRY_CATEGORIES, after=after)
            interfaces.lock("registry", self.registry_id, after=after)
        endpoints = interfaces.connect(
            self.registry_id, {"registry": "registry"}, after=after, is_existing=bool(existing)
        )
        self.scope = Scope(id=self.registry_id, resource=self.registry)
        self.ready = [*after, *(each.names for each in endpoints.values())]
        self.login_server = self.registry.login_server
        self.register_outputs({"login_server": self.login_server})

    def _make(self, name: str, args: RegistryArgs) -> containerregistry.Registry:
        context = args.context
        is_prod = context.settings.stage == "prod"
        return containerregistry.Registry(
            f"{name}-registry",
            registry_name=context.names.registry,
            resource_group_name=context.names.resource_group,
            location=context.settings.location,
            # Private endpoints, network rules, retention and zones are Premium's alone.
            sku=containerregistry.SkuArgs(name="Premium" if context.is_private else "Standard"),
            admin_user_enabled=False,
            anonymous_pull_enabled=False,
            network_rule_bypass_options="AzureServices",
            network_rule_set=(
                containerregistry.NetworkRuleSetArgs(default_action="Deny")
                if context.is_private
                else None
            ),
            policies=_prod_policies() if is_prod else None,
            public_network_access="Disabled" if context.is_private else "Enabled",
            zone_redundancy="Enabled" if is_prod else "Disabled",
            tags=context.tags,
            opts=replaced_with(self, args.resource_group),
        )


def _prod_policies() -> containerregistry.PoliciesArgs:
    """Build prod's policies; ARM-audience tokens stay allowed (checklist A6), as nodes may have no
    others to pull with.
    """
    return containerregistry.PoliciesArgs(
        export_policy=containerregistry.ExportPolicyArgs(status="disabled"),
        retention_policy=containerregistry.RetentionPolicyArgs(
            days=_UNTAGGED_DAYS, status="enabled"
        ),
    )
