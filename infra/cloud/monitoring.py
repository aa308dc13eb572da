"""Declares where logs and measurements go, and which resources send theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_azure_native import applicationinsights, monitor, operationalinsights

from infra.cloud.access import Scope
from infra.cloud.context import Context
from infra.cloud.resource_options import replaced_with

if TYPE_CHECKING:
    from pulumi_azure_native.resources import ResourceGroup

    from infra.cloud.settings import Stage

_WORKSPACES = "Microsoft.OperationalInsights/workspaces"
STORAGE_CATEGORIES = ("StorageRead", "StorageWrite", "StorageDelete")
VAULT_CATEGORIES = ("AuditEvent",)
REGISTRY_CATEGORIES = ("ContainerRegistryLoginEvents", "ContainerRegistryRepositoryEvents")
WORKSPACE_CATEGORIES = (
    "AmlComputeClusterEvent",
    "AmlComputeJobEvent",
    "AmlRunStatusChangedEvent",
)
# The lines that a run writes by the million. All others are the audit: who deleted data, read a
# secret, logged in to the registry, changed a cluster or started a job.
_FLOODS = frozenset({"StorageRead", "StorageWrite"})
_UNLIMITED_GB = -1


@dataclass(frozen=True, kw_only=True)
class _Lifecycle:
    """Days that a stage's logs are kept, gigabytes taken in a day, and days of the audit.

    dev sends no logs, and has no audit.
    """

    kept_days: int
    daily_gb: int
    audit_days: int | None


# Every read of the data account is a line of its log: training on millions of small files would
# cost more than its storage does, so each stage has a daily limit. Past it nothing is taken until
# the next day, so the audit is kept elsewhere, without a limit: reads cannot blind it.
_LIFECYCLES: Mapping[Stage, _Lifecycle] = {
    "dev": _Lifecycle(kept_days=30, daily_gb=1, audit_days=None),
    "test": _Lifecycle(kept_days=30, daily_gb=2, audit_days=90),
    "prod": _Lifecycle(kept_days=90, daily_gb=10, audit_days=365),
}


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """The group that the logs are kept in."""

    context: Context
    resource_group: ResourceGroup


class Monitoring(pulumi.ComponentResource):
    """Log Analytics for measurements and data's logs, another one for the audit, and Application
    Insights, which keeps its data in the first.
    """

    def __init__(
        self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Monitoring", name, None, opts)
        context = args.context
        names = context.names
        lifecycle = _LIFECYCLES[context.settings.stage]
        existing = context.settings.existing.log_analytics
        self.log_analytics_id = existing or names.id_of(_WORKSPACES, names.log_analytics)
        self.app_insights_id = names.id_of("Microsoft.Insights/components", names.app_insights)
        self.log_analytics = (
            operationalinsights.Workspace.get(
                f"{name}-log-analytics", existing, opts=pulumi.ResourceOptions(parent=self)
            )
            if existing
            else self._workspace(
                f"{name}-log-analytics",
                args,
                names.log_analytics,
                kept_days=lifecycle.kept_days,
                daily_gb=lifecycle.daily_gb,
            )
        )
        # Where there is a workspace for all, its owner says what it takes in a day.
        self.audit_id = existing or names.id_of(_WORKSPACES, names.audit)
        self.audit = self.log_analytics if existing else None
        if lifecycle.audit_days and not existing:
            self.audit = self._workspace(
                f"{name}-audit",
                args,
                names.audit,
                kept_days=lifecycle.audit_days,
                daily_gb=_UNLIMITED_GB,
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
        self.app_insights_scope = Scope(id=self.app_insights_id, resource=self.app_insights)
        self.register_outputs({"log_analytics": self.log_analytics_id.rpartition("/")[2]})

    def _workspace(
        self, name: str, args: MonitoringArgs, workspace_name: str, *, kept_days: int, daily_gb: int
    ) -> operationalinsights.Workspace:
        context = args.context
        return operationalinsights.Workspace(
            name,
            workspace_name=workspace_name,
            resource_group_name=context.names.resource_group,
            location=context.settings.location,
            sku=operationalinsights.WorkspaceSkuArgs(name="PerGB2018"),
            retention_in_days=kept_days,
            workspace_capping=operationalinsights.WorkspaceCappingArgs(daily_quota_gb=daily_gb),
            features=operationalinsights.WorkspaceFeaturesArgs(
                disable_local_auth=True,
                enable_log_access_using_only_resource_permissions=True,
            ),
            tags=context.tags,
            opts=replaced_with(self, args.resource_group),
        )


def diagnose(
    name: str,
    target_id: str,
    categories: Sequence[str],
    *,
    monitoring: Monitoring,
    depends_on: Sequence[pulumi.Resource],
    parent: pulumi.Resource,
) -> None:
    """Send these categories of a resource's logs to Log Analytics, the audit apart from the rest."""
    assert monitoring.audit
    audit = [each for each in categories if each not in _FLOODS]
    floods = [each for each in categories if each in _FLOODS]
    for suffix, sent, workspace_id, workspace in (
        ("", floods, monitoring.log_analytics_id, monitoring.log_analytics),
        ("-audit" if floods else "", audit, monitoring.audit_id, monitoring.audit),
    ):
        if sent:
            monitor.DiagnosticSetting(
                f"{name}{suffix}",
                name=f"trainyard{suffix}",
                resource_uri=target_id,
                workspace_id=workspace_id,
                logs=[
                    monitor.DiagnosticsLogSettingsArgs(category=category, enabled=True)
                    for category in sent
                ],
                opts=replaced_with(parent, workspace, *depends_on),
            )
