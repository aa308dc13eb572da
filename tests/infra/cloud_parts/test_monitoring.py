"""Logs of each stage go to their place, every input compared; prod has its locks."""

from __future__ import annotations

from typing import Any

import pytest

from infra.cloud.locks import Locks
from infra.cloud.monitoring import (
    STORAGE_CATEGORIES,
    VAULT_CATEGORIES,
    Monitoring,
    MonitoringArgs,
    diagnose,
)

SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000001"
KEPT = {"dev": (30, 1), "test": (30, 2), "prod": (90, 10)}
AUDIT_DAYS = {"test": 90, "prod": 365}


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

    def log_analytics(name: str, days: int, daily_gb: int) -> dict[str, Any]:
        return {
            **common,
            "workspaceName": name,
            "sku": {"name": "PerGB2018"},
            "retentionInDays": days,
            "workspaceCapping": {"dailyQuotaGb": daily_gb},
            "features": {
                "disableLocalAuth": True,
                "enableLogAccessUsingOnlyResourcePermissions": True,
            },
        }

    audit_days = AUDIT_DAYS.get(stage)
    audit = (
        {"logs-audit": log_analytics(f"log-acme-{stage}-audit", audit_days, -1)}
        if audit_days
        else {}
    )
    assert recorded.inputs() == {
        "logs-log-analytics": log_analytics(f"log-acme-{stage}", days, daily_gb),
        **audit,
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


def test_the_audit_goes_where_reads_of_data_cannot_fill_the_day(record):
    def diagnosed(context, group, opts):
        logs = monitoring(context, group, opts)
        for kind, target, categories in (
            ("vault", "Microsoft.KeyVault/vaults", VAULT_CATEGORIES),
            ("data", "Microsoft.Storage/storageAccounts", STORAGE_CATEGORIES),
        ):
            diagnose(
                f"{kind}-diagnostics",
                context.names.id_of(target, kind),
                categories,
                monitoring=logs,
                depends_on=[group],
                parent=logs,
            )

    recorded = record("prod", diagnosed)
    ids = f"{SUBSCRIPTION}/resourceGroups/rg-acme-prod/providers"

    def sent(name: str, target: str, workspace: str, *categories: str) -> dict[str, Any]:
        return {
            "name": name,
            "resourceUri": f"{ids}/{target}",
            "workspaceId": f"{ids}/Microsoft.OperationalInsights/workspaces/{workspace}",
            "logs": [{"category": each, "enabled": True} for each in categories],
        }

    account = "Microsoft.Storage/storageAccounts/data"
    assert {name: seen.inputs for name, seen in recorded.seen.items() if "diagnostics" in name} == {
        "vault-diagnostics": sent(
            "trainyard", "Microsoft.KeyVault/vaults/vault", "log-acme-prod-audit", "AuditEvent"
        ),
        "data-diagnostics": sent(
            "trainyard", account, "log-acme-prod", "StorageRead", "StorageWrite"
        ),
        "data-diagnostics-audit": sent(
            "trainyard-audit", account, "log-acme-prod-audit", "StorageDelete"
        ),
    }
    assert recorded.waits_for("vault-diagnostics") == ["group", "logs-audit"]
    assert recorded.waits_for("data-diagnostics") == ["group", "logs-log-analytics"]


def test_a_lock_stops_deletions_and_nothing_else(record):
    def locked(context, group, opts):
        target = context.names.id_of("Microsoft.Storage/storageAccounts", "stdata")
        Locks("locks", opts).add("data", target, [group])

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
