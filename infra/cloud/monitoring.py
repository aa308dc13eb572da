"""Declares where logs and measurements go, and which resources send theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_azure_native import applicationinsights, monitor, operationalinsights

from infra.cloud.context import Context
from infra.cloud.resource_options import replaced_with

if TYPE_CHECKING:
    from pulumi_azure_native.resources import ResourceGroup

    from infra.cloud.settings import Stage

STORAGE_CATEGORIES = ("StorageRead", "StorageWrite", "StorageDelete")
VAULT_CATEGORIES = ("AuditEvent",)
REGISTRY_CATEGORIES = ("ContainerRegistryLoginEvents", "ContainerRegistryRepositoryEvents")
WORKSPACE_CATEGORIES = (
    "AmlComputeClusterEvent",
    "AmlComputeJobEvent",
    "AmlRunStatusChangedEvent",
)


@dataclass(frozen=True, kw_only=True)
class _Lifecycle:
    """Days that a stage's logs are kept, and gigabytes taken in a day."""

    kept_days: int
    daily_gb: int


# Every read of the data account is a line of its log: training on millions of small files would
# cost more than its storage does, so each stage has a daily limit.
_LIFECYCLES: Mapping[Stage, _Lifecycle] = {
    "dev": _Lifecycle(kept_days=30, daily_gb=1),
    "test": _Lifecycle(kept_days=30, daily_gb=2),
    "prod": _Lifecycle(kept_days=90, daily_gb=10),
}


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """The group that the logs are kept in."""

    context: Context
    resource_group: ResourceGroup


class Monitoring(pulumi.ComponentResource):
    """A Log Analytics workspace, and Application Insights that keeps its data there."""

    def __init__(
        self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Monitoring", name, None, opts)
        context = args.context
        names = context.names
        lifecycle = _LIFECYCLES[context.settings.stage]
        self.log_analytics_id = names.id_of(
            "Microsoft.OperationalInsights/workspaces", names.log_analytics
        )
        self.app_insights_id = names.id_of("Microsoft.Insights/components", names.app_insights)
        self.log_analytics = operationalinsights.Workspace(
            f"{name}-log-analytics",
            workspace_name=names.log_analytics,
            resource_group_name=names.resource_group,
            location=context.settings.location,
            sku=operationalinsights.WorkspaceSkuArgs(name="PerGB2018"),
            retention_in_days=lifecycle.kept_days,
            workspace_capping=operationalinsights.WorkspaceCappingArgs(
                daily_quota_gb=lifecycle.daily_gb
            ),
            features=operationalinsights.WorkspaceFeaturesArgs(
                disable_local_auth=True,
                enable_log_access_using_only_resource_permissions=True,
            ),
            tags=context.tags,
            opts=replaced_with(self, args.resource_group),
        )
        self.app_insights = applicationinsights.Component(
            f"{name}-app-insights",
            resource_name_=names.app_insights,
            resource_group_name=names.resource_group,
            location=context.settings.location,
            kind="web",
            application_type="web",
            ingestion_mode="LogAnalytics",
            workspace_resource_id=self.log_analytics_id,
            disable_local_auth=context.settings.stage != "dev",
            tags=context.tags,
            opts=pulumi.ResourceOptions.merge(
                replaced_with(self, self.log_analytics),
                # What Azure makes up by itself is a password for sending telemetry all the same.
                pulumi.ResourceOptions(
                    additional_secret_outputs=["connectionString", "instrumentationKey"]
                ),
            ),
        )
        self.register_outputs({"log_analytics": names.log_analytics})


def diagnose(
    name: str,
    target_id: str,
    categories: Sequence[str],
    *,
    monitoring: Monitoring,
    depends_on: Sequence[pulumi.Resource],
    parent: pulumi.Resource,
) -> monitor.DiagnosticSetting:
    """Send these categories of a resource's logs to Log Analytics."""
    return monitor.DiagnosticSetting(
        name,
        name="trainyard",
        resource_uri=target_id,
        workspace_id=monitoring.log_analytics_id,
        logs=[
            monitor.DiagnosticsLogSettingsArgs(category=category, enabled=True)
            for category in categories
        ],
        opts=replaced_with(parent, monitoring.log_analytics, *depends_on),
    )
