"""Declares the monthly budget, which mails at its thresholds and stops nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import consumption, resources

from infra.cloud.context import Context
from infra.cloud.resource_options import replaced_with

# Azure allows five. The last one warns of what the month is going to be, before it is spent.
_MILESTONES = (
    (50, consumption.ThresholdType.ACTUAL),
    (75, consumption.ThresholdType.ACTUAL),
    (90, consumption.ThresholdType.ACTUAL),
    (100, consumption.ThresholdType.ACTUAL),
    (110, consumption.ThresholdType.FORECASTED),
)


@dataclass(frozen=True, kw_only=True)
class BudgetArgs:
    """The group whose costs are counted."""

    context: Context
    resource_group: resources.ResourceGroup


class Budget(pulumi.ComponentResource):
    """The budget of the resource group, for as long as the group lives."""

    def __init__(
        self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Budget", name, None, opts)
        settings, names = args.context.settings.budget, args.context.names
        self.budget = consumption.Budget(
            f"{name}-budget",
            budget_name=names.budget,
            scope=names.group_id,
            category=consumption.CategoryType.COST,
            amount=settings.monthly_amount,
            time_grain=consumption.TimeGrainType.MONTHLY,
            time_period=consumption.BudgetTimePeriodArgs(start_date=f"{settings.start}T00:00:00Z"),
            notifications={
                f"{kind.value.lower()}-{percent}": consumption.NotificationArgs(
                    enabled=True,
                    operator=consumption.OperatorType.GREATER_THAN_OR_EQUAL_TO,
                    threshold=percent,
                    threshold_type=kind,
                    contact_emails=list(settings.contacts),
                )
                for percent, kind in _MILESTONES
            },
            opts=pulumi.ResourceOptions.merge(
                replaced_with(self, args.resource_group),
                # Azure takes a first month that is not over yet; from then on it stays.
                pulumi.ResourceOptions(ignore_changes=["timePeriod"]),
            ),
        )
        self.register_outputs({})
