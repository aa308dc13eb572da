"""Declares alerts on what costs money or stops work unseen, and the group that they are mailed to."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import monitor

from infra.cloud.access import Scope
from infra.cloud.context import Context
from infra.cloud.resource_options import replaced_with

_WORKSPACES = "Microsoft.MachineLearningServices/workspaces"


@dataclass(frozen=True, kw_only=True)
class _Alert:
    """A metric, the limit that it has to pass for a whole window, and what is told then.

    `dimension` names that of the metric by which clusters are watched each on its own.
    """

    metric: str
    dimension: str
    aggregation: monitor.AggregationTypeEnum
    operator: monitor.Operator
    threshold: float
    window: str
    says: str


LOOKS_EVERY = "PT15M"
# Names and dimensions of metrics: Azure Monitor, "Supported metrics for
# Microsoft.MachineLearningServices/workspaces", categories Quota and Resource.
_ALERTS = {
    "idle-gpus": _Alert(
        metric="GpuUtilizationPercentage",
        dimension="ComputeName",
        aggregation=monitor.AggregationTypeEnum.AVERAGE,
        operator=monitor.Operator.LESS_THAN,
        threshold=5,
        window="PT1H",
        says="A job holds GPUs and has hardly used them for an hour: `launch ls`, `launch logs`.",
    ),
    "idle-nodes": _Alert(
        metric="Idle Nodes",
        dimension="ClusterName",
        aggregation=monitor.AggregationTypeEnum.MINIMUM,
        operator=monitor.Operator.GREATER_THAN,
        threshold=0,
        window="PT1H",
        says="Nodes have waited for a job for an hour and are paid for: `launch cluster pause`.",
    ),
    "unusable-nodes": _Alert(
        metric="Unusable Nodes",
        dimension="ClusterName",
        aggregation=monitor.AggregationTypeEnum.MINIMUM,
        operator=monitor.Operator.GREATER_THAN,
        threshold=0,
        window="PT15M",
        says="Nodes have been unusable for 15 minutes: `launch cluster show` tells their errors.",
    ),
    "quota": _Alert(
        metric="Quota Utilization Percentage",
        dimension="VmFamilyName",
        aggregation=monitor.AggregationTypeEnum.MAXIMUM,
        operator=monitor.Operator.GREATER_THAN,
        threshold=90,
        window="PT1H",
        says="More than 90 % of a VM family's quota is used: further nodes will wait, or ask Azure "
        "for more.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class AlertsArgs:
    """The watched workspace."""

    context: Context
    workspace: Scope


class Alerts(pulumi.ComponentResource):
    """Rules on the workspace's own metrics; the receivers are `alerts.mails` of the settings."""

    def __init__(
        self, name: str, args: AlertsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Alerts", name, None, opts)
        context = args.context
        names = context.names
        self.action_group = monitor.ActionGroup(
            f"{name}-receivers",
            action_group_name=names.action_group,
            resource_group_name=names.resource_group,
            location="Global",
            enabled=True,
            group_short_name="trainyard",
            email_receivers=[
                monitor.MicrosoftCommonEmailReceiverArgs(
                    name=mail, email_address=mail, use_common_alert_schema=True
                )
                for mail in context.settings.alerts.mails
            ],
            tags=context.tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[args.workspace.resource]),
        )
        self._group_id = names.id_of("Microsoft.Insights/actionGroups", names.action_group)
        for key, alert in _ALERTS.items():
            self._rule(f"{name}-{key}", args, names.alert(key), alert)
        self.register_outputs({})

    def _rule(
        self, name: str, args: AlertsArgs, rule_name: str, alert: _Alert
    ) -> monitor.MetricAlert:
        context = args.context
        return monitor.MetricAlert(
            name,
            rule_name=rule_name,
            resource_group_name=context.names.resource_group,
            location="global",
            description=alert.says,
            enabled=True,
            severity=2,
            scopes=[args.workspace.id],
            target_resource_type=_WORKSPACES,
            target_resource_region=context.settings.location,
            evaluation_frequency=LOOKS_EVERY,
            window_size=alert.window,
            auto_mitigate=True,
            criteria=monitor.MetricAlertSingleResourceMultipleMetricCriteriaArgs(
                odata_type="Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria",
                all_of=[
                    monitor.MetricCriteriaArgs(
                        criterion_type="StaticThresholdCriterion",
                        name="limit",
                        metric_namespace=_WORKSPACES,
                        metric_name=alert.metric,
                        time_aggregation=alert.aggregation,
                        operator=alert.operator,
                        threshold=alert.threshold,
                        dimensions=[
                            monitor.MetricDimensionArgs(
                                name=alert.dimension, operator="Include", values=["*"]
                            )
                        ],
                        # A workspace without a job has not measured anything yet.
                        skip_metric_validation=True,
                    )
                ],
            ),
            actions=[monitor.MetricAlertActionArgs(action_group_id=self._group_id)],
            tags=context.tags,
            opts=replaced_with(self, args.workspace.resource, self.action_group),
        )
