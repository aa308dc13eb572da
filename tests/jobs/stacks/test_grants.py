"""The roles that a stack has given are read from its record, whatever backend keeps it."""

from __future__ import annotations

import json

import pytest

from jobs.contracts.errors import LaunchError
from jobs.stacks.grants import Grant, recorded_grants

SCOPE = "/subscriptions/S/resourceGroups/G/providers/Microsoft.Storage/storageAccounts/data"
ROLE = "/subscriptions/S/providers/Microsoft.Authorization/roleDefinitions/B24988AC"


def row(name, *, kind="azure-native:authorization:RoleAssignment", **more):
    inputs = {"scope": SCOPE, "roleDefinitionId": ROLE, "principalId": "ABC"}
    return {
        "urn": f"urn:pulumi:dev::trainyard::{kind}::{name}",
        "type": kind,
        "inputs": inputs,
        **more,
    }


ROWS = [
    row("cloud-b"),
    row("cloud-a"),
    row("cloud-old", delete=True),  # of a replacement: the new one is there
    row("cloud-x", kind="azure-native:storage:StorageAccount"),
    {"urn": "urn:pulumi:dev::trainyard::pulumi:pulumi:Stack::s", "type": "pulumi:pulumi:Stack"},
]
GRANTS = [
    Grant(name=name, scope=SCOPE, role_id="b24988ac", principal_id="abc")
    for name in ("cloud-a", "cloud-b")
]


def test_the_record_of_a_service_is_exported(project):
    project.say(json.dumps({"version": 3, "deployment": {"resources": ROWS}}))
    assert recorded_grants("dev") == GRANTS
    assert project.calls() == ["stack export -s dev --non-interactive"]


def test_the_record_in_a_folder_is_read_without_pulumi(project, monkeypatch, tmp_path):
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/backend")
    (project.root / "Pulumi.dev.yaml").touch()
    with pytest.raises(LaunchError, match="was never made"):
        recorded_grants("dev")
    record = tmp_path / "backend/.pulumi/stacks/trainyard/dev.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"checkpoint": {"latest": {"resources": ROWS}}}))
    assert recorded_grants("dev") == GRANTS
    assert project.calls() == []
