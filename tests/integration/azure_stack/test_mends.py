"""What `launch env check` names as the mend of a part mends it: against the stand-in for Azure."""

from __future__ import annotations

import pytest

from tests.integration.azure_stack.conftest import CloudProject


@pytest.mark.faults
def test_a_workspace_is_made_again_with_what_lies_in_it(standing: CloudProject) -> None:
    before = set(standing.live())
    target = ("--target", "**Workspace::cloud-workspace", "--target-dependents")
    standing.pulumi("destroy", "-s", "dev", "--yes", "--skip-preview", *target)
    gone = before - set(standing.live())
    workspace = next(each for each in before if each.endswith("/workspaces/mlw-yard-dev-1"))
    assert workspace in gone
    inside = {each for each in gone if each.startswith(workspace)}
    assert {each.split("/")[-2] for each in inside} == {
        "workspaces",
        "computes",
        "datastores",
        "roleAssignments",
    }
    # What watches it, and what was assigned after it.
    assert {each.split("/")[-2] for each in gone - inside} == {
        "actionGroups",
        "metricAlerts",
        "policyAssignments",
    }
    standing.up()
    assert set(standing.live()) == before
