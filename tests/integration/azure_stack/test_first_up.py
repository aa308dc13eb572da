"""The first `up` gives Azure the time and the order that it needs; later ones do not wait."""

from __future__ import annotations

LATENCY_S = 1.0


def created(project, name):
    """When the stand-in made it."""
    return project.live()[project.owned()[name]]["created"]


def test_the_workspace_waits_for_its_roles_and_the_clusters_for_each_other(new_project):
    project = new_project("dev")
    project.settings["role_wait_s"] = 3
    assert "waiting" not in project.pulumi("preview", "-s", "dev").stdout
    project.script(latency_s=LATENCY_S)
    assert "cloud-workspace: waiting 3 s" in project.up()

    roles = [each for each in project.owned() if each.startswith("cloud-access-workspace-")]
    assert "cloud-access-workspace-approval-group" in roles
    assert created(project, "cloud-workspace") - max(created(project, role) for role in roles) > 3
    cpu, gpu = (created(project, f"cluster-{key}-compute") for key in ("cpu", "gpu"))
    # Each is there in the middle of its request.
    assert abs(cpu - gpu) > LATENCY_S
    live = project.live()[project.owned()["cloud-workspace"]]["outputs"]
    assert live["managedNetwork"]["status"]["status"] == "Active"

    project.script()
    project.settings["owner"] = "ada@example.com"
    said = project.up()
    assert "updated" in said
    assert "waiting" not in said
    project.destroy()
