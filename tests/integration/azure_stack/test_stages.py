"""`test` and `prod` through the real engine: made from nothing, stable, and taken down or not."""

from __future__ import annotations

import pytest

from tests.integration.azure_stack.kept_secrets import find_kept_secrets


def clusters_of(names):
    return {name for name in names if name.startswith("cluster-")}


def test_the_stack_test_is_made_is_stable_and_leaves_nothing(new_project):
    project = new_project("test")
    project.up()
    assert set(project.owned().values()) == project.live().keys()
    assert project.preview("--expect-no-changes") == {}
    assert find_kept_secrets(project) == []

    project.destroy()
    assert project.live() == {}


def test_a_destroy_of_prod_is_refused_and_costs_no_more_than_idle_clusters(new_project):
    project = new_project("prod")
    project.up()
    before, owned = project.live(), project.owned()
    assert set(owned.values()) == before.keys()

    said = project.destroy(check=False)
    assert "cannot be deleted" in said
    assert "cloud-group" in said
    clusters = {owned[name] for name in clusters_of(owned)}
    assert len(clusters) == len(project.settings["clusters"])
    assert project.live() == {key: each for key, each in before.items() if key not in clusters}

    said = project.up()
    assert f"+ {2 * len(clusters)} created" in said
    assert "updated" not in said
    assert "replaced" not in said
    assert project.owned() == owned
    assert project.live().keys() == before.keys()


@pytest.mark.faults
def test_prod_taken_down_on_purpose_keeps_its_containers_and_vault(new_project):
    project = new_project("prod")
    project.up()
    owned = project.owned()
    project.pulumi("state", "unprotect", "--all", "--yes", "-s", "prod")
    project.destroy()
    kept = {owned[name] for name in ("cloud-data-data", "cloud-data-runs", "cloud-vault")}
    assert kept <= project.live().keys()
