"""What `launch env check` names as the mend of a part mends it: against the stand-in for Azure."""

from __future__ import annotations

import json

import pytest

from tests.integration.azure_stack.conftest import CloudProject


def take_away(project: CloudProject, part: str) -> str:
    """Remove one thing, by a part of its id, as somebody else would; gives its id."""
    identifier = next(each for each in project.live() if part in each)
    file = project.azure / "resources.json"
    found = json.loads(file.read_text())
    del found["resources"][identifier.lower()]
    file.write_text(json.dumps(found))
    return identifier


def test_up_with_a_refresh_brings_back_a_role_and_a_cluster(standing: CloudProject) -> None:
    before = set(standing.live())
    role = take_away(standing, "/roleAssignments/")
    cluster = take_away(standing, "/computes/gpu-")
    assert before - set(standing.live()) == {role, cluster}
    standing.up("--refresh")
    assert set(standing.live()) == before


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
