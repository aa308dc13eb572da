"""Logs of each stage go to their place, every input compared; prod has its locks."""

from __future__ import annotations

import pytest

from infra.cloud.locks import Locks, LocksArgs
from infra.cloud.monitoring import VAULT_CATEGORIES, Monitoring, MonitoringArgs, diagnose

SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000001"
KEPT = {"dev": (30, 1), "test": (30, 2), "prod": (90, 10)}


def monitoring(context, group, opts) -> Monitoring:
    return Monitoring("logs", MonitoringArgs(context=context, resource_group=group), opts)


@pytest.mark.parametrize("stage", ["dev", "test", "prod"])
def test_logs_are_kept_for_a_time_and_up_to_a_daily_limit(record, stage):
    recorded = record(stage, monitoring)
    days, daily_gb = KEPT[stage]
    common = {
        "resourceGroupName": f"rg-acme-{stage}",
        "location": "westeurope",
        "tags": {
            "project": "trainyard",
            "stack": stage,
            "stage": stage,
            "owner": "platform@example.com",
        },
    }

    assert recorded.inputs() == {
        "logs-log-analytics": {
            **common,
            "workspaceName": f"log-acme-{stage}",
            "sku": {"name": "PerGB2018"},
            "retentionInDays": days,
            "workspaceCapping": {"dailyQuotaGb": daily_gb},
            "features": {
                "disableLocalAuth": True,
                "enableLogAccessUsingOnlyResourcePermissions": True,
            },
        },
        "logs-app-insights": {
            **common,
            "resourceName": f"appi-acme-{stage}",
            "kind": "web",
            "applicationType": "web",
            "ingestionMode": "LogAnalytics",
            "workspaceResourceId": (
                f"{SUBSCRIPTION}/resourceGroups/rg-acme-{stage}"
                f"/providers/Microsoft.OperationalInsights/workspaces/log-acme-{stage}"
            ),
            "disableLocalAuth": stage != "dev",
            # The SDK's own defaults.
            "flowType": "Bluefield",
            "requestSource": "rest",
            "publicNetworkAccessForIngestion": "Enabled",
            "publicNetworkAccessForQuery": "Enabled",
        },
    }
    secrets = recorded.seen["logs-app-insights"].options.additional_secret_outputs
    assert secrets == ["connectionString", "instrumentationKey"]


def test_a_resource_sends_its_log_lines_to_log_analytics_once_both_are_there(record):
    def diagnosed(context, group, opts):
        logs = monitoring(context, group, opts)
        diagnose(
            "vault-diagnostics",
            context.names.id_of("Microsoft.KeyVault/vaults", "kv"),
            VAULT_CATEGORIES,
            monitoring=logs,
            depends_on=[group],
            parent=logs,
        )

    recorded = record("prod", diagnosed)
    ids = f"{SUBSCRIPTION}/resourceGroups/rg-acme-prod/providers"

    assert recorded.seen["vault-diagnostics"].inputs == {
        "name": "trainyard",
        "resourceUri": f"{ids}/Microsoft.KeyVault/vaults/kv",
        "workspaceId": f"{ids}/Microsoft.OperationalInsights/workspaces/log-acme-prod",
        "logs": [{"category": "AuditEvent", "enabled": True}],
    }
    assert recorded.waits_for("vault-diagnostics") == ["group", "logs-log-analytics"]


def test_a_lock_stops_deletions_and_nothing_else(record):
    def locked(context, group, opts):
        target = context.names.id_of("Microsoft.Storage/storageAccounts", "stdata")
        Locks("locks", LocksArgs(targets={"data": target}, depends_on=[group]), opts)

    recorded = record("prod", locked)

    assert recorded.inputs() == {
        "locks-data": {
            "lockName": "trainyard",
            "scope": (
                f"{SUBSCRIPTION}/resourceGroups/rg-acme-prod"
                "/providers/Microsoft.Storage/storageAccounts/stdata"
            ),
            "level": "CanNotDelete",
            "notes": (
                "Holds what cannot be made again. To delete it on purpose remove this lock first."
            ),
        }
    }
    assert recorded.waits_for("locks-data") == ["group"]
