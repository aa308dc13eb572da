"""Declares an autoscaling cluster of the workspace, and the hold on prod's clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import machinelearningservices

from infra.cloud.context import Context
from infra.cloud.identity import Identities
from infra.cloud.settings import CloudClusterSettings
from infra.naming import physical_name

_PRIORITIES = {
    "dedicated": machinelearningservices.VmPriority.DEDICATED,
    "low_priority": machinelearningservices.VmPriority.LOW_PRIORITY,
}


@dataclass(frozen=True, kw_only=True)
class CloudClusterArgs:
    """The cluster's `key` in the settings, those settings, and what is to happen before it."""

    context: Context
    key: str
    settings: CloudClusterSettings
    identities: Identities
    depends_on: Sequence[pulumi.Resource]
    hooks: pulumi.ResourceHookBinding


class CloudCluster(pulumi.ComponentResource):
    """An AmlCompute without SSH, local accounts or public addresses."""

    def __init__(
        self, name: str, args: CloudClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Cluster", name, None, opts)
        context, settings = args.context, args.settings
        self.args = args
        self.compute_name = compute_name(context, args.key)
        self.compute = machinelearningservices.Compute(
            f"{name}-compute",
            compute_name=self.compute_name,
            resource_group_name=context.names.resource_group,
            workspace_name=context.names.workspace,
            location=context.settings.location,
            identity=machinelearningservices.ManagedServiceIdentityArgs(
                type=machinelearningservices.ManagedServiceIdentityType.USER_ASSIGNED,
                user_assigned_identities=[args.identities.id_of(settings.identity)],
            ),
            properties=machinelearningservices.AmlComputeArgs(
                compute_type="AmlCompute",
                compute_location=context.settings.location,
                disable_local_auth=True,
                properties=machinelearningservices.AmlComputePropertiesArgs(
                    vm_size=settings.size,
                    vm_priority=_PRIORITIES[settings.priority],
                    os_type=machinelearningservices.OsType.LINUX,
                    enable_node_public_ip=False,
                    # Left out, Azure would open SSH on nodes outside of a network.
                    remote_login_port_public_access=(
                        machinelearningservices.RemoteLoginPortPublicAccess.DISABLED
                    ),
                    scale_settings=machinelearningservices.ScaleSettingsArgs(
                        min_node_count=settings.min_nodes,
                        max_node_count=settings.max_nodes,
                        node_idle_time_before_scale_down=iso_duration(settings.idle_s),
                    ),
                ),
            ),
            # The declared minimum is told by a tag: the live one is moved by pause and resume.
            tags={**context.tags, "cluster": args.key, "min-nodes": str(settings.min_nodes)},
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(args.depends_on),
                ignore_changes=["properties.properties.scaleSettings.minNodeCount"],
                # The provider would delete first; then a size that is not to be had leaves nothing.
                delete_before_replace=False,
                # In an older workspace the first cluster starts the network, for half an hour.
                custom_timeouts=pulumi.CustomTimeouts(create="90m"),
                hooks=args.hooks,
            ),
        )
        self.register_outputs({"compute": self.compute_name})


def compute_name(context: Context, key: str) -> str:
    """Name a cluster's compute.

    Azure changes none of these settings in place, and the provider does not know it of the first two: a
    new name makes it make another cluster beside the old one, and delete that one after.
    `replace_on_changes` would ask for a second one of the same name whenever Azure has given the size
    back in other capitals.
    """
    settings = context.settings.clusters[key]
    fixed = {
        "size": settings.size,
        "priority": settings.priority,
        "location": context.settings.location,
    }
    return physical_name(key, fixed)


class ClusterHold(pulumi.ComponentResource):
    """Keeps clusters, and the runs on them, from a `destroy` that protected resources will stop.

    Nothing in Azure. What depends on a cluster is deleted before it: where that is protected,
    `destroy` fails before any cluster, with a preview or without.
    """

    def __init__(
        self,
        name: str,
        clusters: Iterable[CloudCluster],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        after = pulumi.ResourceOptions(depends_on=[each.compute for each in clusters])
        merged = pulumi.ResourceOptions.merge(opts, after)
        super().__init__("trainyard:cloud:ClusterHold", name, None, merged)
        self.register_outputs({})


def iso_duration(seconds: int) -> str:
    """Write seconds as ISO 8601, in the form that Azure returns (120 as `PT2M`)."""
    minutes, rest = divmod(seconds, 60)
    return "PT" + (f"{minutes}M" if minutes else "") + (f"{rest}S" if rest else "")
