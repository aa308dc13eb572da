"""A stack on Azure through the real engine: what each change does, and destroy and up again."""

from __future__ import annotations

import pytest

from jobs.host.environment_file import parse_environment
from tests.fakes.azure_native import SUBSCRIPTION_ID
from tests.integration.azure_stack.conftest import fresh_project
from tests.integration.azure_stack.kept_secrets import find_kept_secrets

REPLACED = "replace"
COMPUTES = "Microsoft.MachineLearningServices/workspaces"


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A stack `dev` for tests that change the generation, which cannot be undone."""
    with fresh_project(tmp_path_factory.mktemp("generations") / "dev", "dev") as made:
        made.up()
        yield made


def test_what_is_there_is_what_the_record_has_and_a_second_up_changes_nothing(standing):
    assert set(standing.owned().values()) == standing.live().keys()
    said = standing.up("--expect-no-changes")
    assert "unchanged" in said
    output = standing.pulumi("stack", "output", "environment", "--json", "-s", "dev").stdout
    environment = parse_environment(output.encode(), "stack `dev`")
    assert {each.compute for each in environment.clusters.values()} == standing.computes().keys()
    assert f"pulumi config set azure-native:subscriptionId {SUBSCRIPTION_ID} -s dev" in said
    assert find_kept_secrets(standing) == []


@pytest.mark.faults
def test_an_owner_is_a_tag_and_a_receiver_of_mails(standing):
    standing.settings["owner"] = "ada@example.com"
    steps = standing.preview()
    assert set(steps.values()) == {"update"}
    assert {"cloud-group", "cloud-budget", "cloud-data-account", "cluster-gpu-compute"} <= {*steps}


@pytest.mark.faults
def test_a_scale_moved_by_launch_is_no_change_and_a_minimum_stays_after_a_refresh_alone(standing):
    identifier = standing.owned()["cluster-cpu-compute"]
    scale = "properties.properties.scaleSettings"
    path = f"{scale}.minNodeCount"
    standing.change_live(identifier, path=path, value=2)
    assert standing.preview() == {}
    standing.refresh()
    # As `launch cluster resize` does; then its line is written down, and is all that changes.
    resized = standing.settings["clusters"]["cpu"]["max_nodes"] + 1
    standing.change_live(identifier, path=f"{scale}.maxNodeCount", value=resized)
    assert standing.preview() == {}

    def minimum():
        return standing.computes()[identifier.rpartition("/")[2]]["scaleSettings"]["minNodeCount"]

    standing.settings["clusters"]["cpu"]["max_nodes"] = resized
    assert standing.preview() == {"cluster-cpu-compute": "update"}
    standing.up()
    assert minimum() == 2
    # Without one the whole request says what Pulumi saw last.
    standing.change_live(identifier, path=path, value=1)
    standing.settings["clusters"]["cpu"]["max_nodes"] += 1
    standing.up()
    assert minimum() == 2


@pytest.mark.faults
def test_a_generation_is_another_vault_and_workspace_with_all_that_is_in_them(own):
    before = own.owned()
    own.settings["generation"] = 2
    steps = own.preview()
    for name in ("cloud-vault", "cloud-workspace", "cloud-datastore-data", "cluster-cpu-compute"):
        assert "replace" in steps[name]
    kept = {"cloud-group", "cloud-data-account", "cloud-data-data", "cloud-registry"}
    assert not kept & steps.keys()

    own.up()
    assert set(own.owned().values()) == own.live().keys()
    assert own.soft_deleted() == {before["cloud-vault"].rpartition("/")[2]}
    assert own.preview() == {}


@pytest.mark.faults
def test_after_destroy_a_vault_that_azure_still_keeps_costs_another_generation(own):
    """It goes on where the one before has ended."""
    own.settings["generation"] = 2
    own.up()
    vault = own.owned()["cloud-vault"].rpartition("/")[2]
    own.destroy()
    assert own.live() == {}
    assert vault in own.soft_deleted()

    said = own.up(check=False)
    assert "cloud-vault" in said
    assert "already exists in deleted state" in said

    own.settings["generation"] = 3
    own.up()
    assert set(own.owned().values()) == own.live().keys()
