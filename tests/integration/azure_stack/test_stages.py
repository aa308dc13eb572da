"""`test` and `prod` through the real engine: made from nothing, stable, and taken down or not."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.fakes.azure_native.service import REQUIRED_RULES
from tests.integration.azure_stack.kept_secrets import find_kept_secrets

# Whole stacks, made and taken down; `make test` has those of dev, and of test on what is there.
pytestmark = pytest.mark.faults


def clusters_of(names):
    return {name for name in names if name.startswith("cluster-")}


def outbound_rules(project):
    workspace = project.live()[project.owned()["cloud-workspace"]]
    return workspace["outputs"]["managedNetwork"]["outboundRules"].keys()


def test_the_stack_test_is_made_is_stable_and_leaves_nothing(new_project):
    project = new_project("test")
    project.write_settings()
    assert project.launch("env", "check", "-s", "test", "--only", "changes").returncode == 0
    project.up()
    assert set(project.owned().values()) == project.live().keys()
    assert project.preview("--expect-no-changes") == {}
    # A private workspace is where it says that it is.
    workspace = project.live()[project.owned()["cloud-workspace"]]["outputs"]
    shown = project.launch("env", "show", "-s", "test", "--json").stdout
    endpoint = f"https://{workspace['workspaceId']}.workspace.swedencentral.api.azureml.ms"
    assert json.loads(shown)["workspace"]["endpoint"] == endpoint
    assert find_kept_secrets(project) == []

    # Azure has started the managed network with the workspace, with rules of its own in it.
    project.refresh()
    assert project.preview() == {}
    assert outbound_rules(project) == {"data-blob", *REQUIRED_RULES}

    project.destroy()
    assert project.live() == {}


def test_prod_taken_down_as_the_guide_says_keeps_data_and_vault_and_comes_back(new_project):
    project = new_project("prod")
    project.up()
    owned = project.owned()
    held = {"cloud-group", "cloud-vault", "cloud-data-data", "cloud-data-runs"}
    kept = held | {"cloud-data-account", "cloud-data-blobs"}  # what those hang on
    pulumi = partial(project.pulumi, check=True)
    pulumi("state", "unprotect", "--all", "--yes", "-s", "prod")
    urns = {name: each["urn"] for name, each in project.resources().items()}
    pulumi("state", "protect", "--yes", "-s", "prod", *(urns[each] for each in sorted(held)))
    down = ("destroy", "--yes", "--skip-preview", "-s", "prod")
    pulumi(*down, "--target", "**ManagementLockByScope**")
    pulumi(*down, "--exclude-protected")
    # Of the clusters' identities, which are gone: roles that a lock would have kept, and open nothing.
    roles = {name for name in owned if name.startswith("cloud-access-")}
    orphans = {name for name in roles if name.endswith(("-data", "-runs"))}
    assert orphans
    assert project.live().keys() == {owned[each] for each in kept | orphans}

    project.up()
    back = project.owned()
    assert back.keys() == owned.keys()
    # The identities that come back are others, with roles of their own.
    assert orphans <= {name for name in owned if back[name] != owned[name]} <= roles
    assert project.live().keys() == {*back.values(), *(owned[each] for each in orphans)}


def test_prod_taken_down_with_all_that_it_holds(new_project):
    project = new_project("prod")
    project.up()
    project.pulumi("state", "unprotect", "--all", "--yes", "-s", "prod")
    down = ("destroy", "--yes", "--skip-preview", "-s", "prod")
    project.pulumi(*down, "--target", "**ManagementLockByScope**")
    project.pulumi(*down)
    assert project.live() == {}

    project.settings["generation"] = 2
    project.up()
    assert set(project.owned().values()) == project.live().keys()


def test_a_new_owner_of_prod_is_no_replacement(new_project):
    project = new_project("prod")
    project.up()
    project.settings["owner"] = "ada@example.org"
    assert set(project.preview().values()) == {"update"}
    project.up()
