"""One stack `dev` on Azure through the real engine: killed, repaired, changed, refused, mended.

Every `up` and preview takes seconds, so that several tests look at the results of each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.pending_creates import PATHS, PREFIX, resource_id
from jobs.host.environment_file import parse_environment
from tests.campaign import campaign
from tests.fakes.azure_native import QUOTA, SUBSCRIPTION_ID
from tests.integration.azure_stack.conftest import CloudProject, fresh_project
from tests.integration.azure_stack.kept_secrets import find_kept_secrets
from tests.integration.azure_stack.kills import copy_pristine, kill_and_mend

OWN = ("cluster-{}", "cluster-{}-compute", "cloud-identity-{}")
ROLES = tuple(f"cloud-access-{{}}-{key}" for key in ("data", "images", "runs", "workspace"))

PROTECTED = """
import pulumi
from pulumi_azure_native import resources

resources.ResourceGroup(
    "cloud-group",
    resource_group_name="rg-yard-prod",
    location=pulumi.Config("trainyard").require("location"),
    opts=pulumi.ResourceOptions(protect=True),
)
"""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudProject]:
    """`dev` as committed with two clusters more, one to be resized and one to go; not up."""
    with fresh_project(tmp_path_factory.mktemp("life") / "dev", "dev") as made:
        clusters = made.settings["clusters"]
        clusters["small"], clusters["spare"] = dict(clusters["cpu"]), dict(clusters["gpu"])
        made.write_settings()
        yield made


@pytest.fixture(scope="module")
def mended(dev: CloudProject, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How its first `up`, killed while the stack was locked, was mended; from here on it is up."""
    pristine = copy_pristine(dev, tmp_path_factory.mktemp("pristine"))
    found, broken = kill_and_mend(dev, pristine, 1)
    campaign("kills of `up` of an Azure stack", tried=1, survived=len(found))
    assert broken == []
    return found


@pytest.fixture
def up(dev: CloudProject, mended: list[str]) -> CloudProject:
    """Before anything is changed."""
    return dev


def test_a_killed_up_is_mended_by_one_repair_and_one_up(mended: list[str]) -> None:
    """That nothing is left to do the preview of the changes shows."""
    # A kill that met no lock would prove nothing.
    assert "removed the lock" in mended[0]


def test_the_id_of_each_resource_can_be_told_before_it_is_made(up: CloudProject) -> None:
    """What `launch env repair` takes over is found by these."""
    declared = [each for each in up.resources().values() if each["type"].startswith(PREFIX)]
    for each in declared:
        assert resource_id(each, SUBSCRIPTION_ID) == each["id"]
    assert {each["type"].removeprefix(PREFIX) for each in declared} <= PATHS.keys()


def test_the_output_is_what_launch_reads_and_no_secret_is_in_it_or_in_the_state(
    up: CloudProject,
) -> None:
    text = up.pulumi("stack", "output", "environment", "--json", "-s", "dev").stdout
    environment = parse_environment(text[text.index("{") :].encode(), "the test")
    assert (environment.stack, environment.engine) == ("dev", "azureml")
    assert {each.compute for each in environment.clusters.values()} == up.computes().keys()
    assert find_kept_secrets(up) == []


def test_another_place_for_what_is_protected_is_refused_whatever_is_allowed(
    tmp_path: Path,
) -> None:
    """One resource alone of a stack `prod`: its whole takes half a minute."""
    with fresh_project(tmp_path / "prod", "prod") as project:
        (project.root / "infra/__main__.py").write_text(PROTECTED)
        project.up()
        project.settings["location"] = "northeurope"
        project.write_settings()
        words = ("env", "check", "-s", "prod", "--only", "changes", "--json")
        done = project.launch(*words, "--allow-replace", "cloud-group", check=False)
    found = json.loads(done.stdout)["changes"]
    names = ("name", "change", "is_protected", "is_allowed")
    losses = [tuple(each[name] for name in names) for each in found["losses"]]
    assert losses == [("cloud-group", "replaced", True, True)]
    assert (done.returncode, found["is_cut_short"]) == (3, True)
    assert "would replace or delete protected resources, and Pulumi refuses it: " in done.stderr


@dataclass(frozen=True, kw_only=True)
class Previewed:
    """The clusters before the changes, and the preview of these."""

    before: dict[str, dict[str, Any]]
    preview: dict[str, str]


@pytest.fixture(scope="module")
def previewed(dev: CloudProject, mended: list[str]) -> Previewed:
    """Change each cluster in another way, in the settings alone."""
    before, clusters = dev.computes(), dev.settings["clusters"]
    clusters["cpu"]["size"] = "Standard_D16ds_v4"
    clusters["gpu"]["priority"] = "dedicated"
    clusters["small"] |= {"min_nodes": 0, "max_nodes": 3, "idle_s": 240}
    del clusters["spare"]
    clusters["new"], clusters["newer"] = dict(clusters["small"]), dict(clusters["small"])
    clusters["small"]["write"] = ["data", "runs"]
    return Previewed(before=before, preview=dev.preview())


@dataclass(frozen=True, kw_only=True)
class Changed:
    """The clusters before the changes, and the `up` that Azure refuses one cluster."""

    before: dict[str, dict[str, Any]]
    said: str
    owned: set[str]


@pytest.fixture(scope="module")
def changed(dev: CloudProject, previewed: Previewed) -> Changed:
    """Make the changes, where Azure has no quota for one of the two new clusters."""
    dev.script(failures=[QUOTA | {"name": "new-*"}])
    said = dev.up(check=False)
    dev.script()
    owned = {each for each in dev.owned() if each.startswith("cluster-new")}
    return Changed(before=previewed.before, said=said, owned=owned)


def test_each_change_of_a_cluster_is_shown_and_touches_no_other(previewed: Previewed) -> None:
    assert previewed.preview == {
        "cluster-cpu-compute": "replace",
        "cluster-gpu-compute": "replace",
        "cluster-small-compute": "update",
        # Azure takes no other role in place.
        "cloud-access-small-data": "replace",
        # Images are built on the cluster without GPUs, which the workspace names.
        "cloud-workspace": "update",
        **{
            name.format(key): change
            for key, change in (("new", "create"), ("newer", "create"), ("spare", "delete"))
            for name in (*OWN, *ROLES)
        },
    }


def test_a_refused_cluster_holds_back_no_other(changed: Changed) -> None:
    assert "ClusterCoreQuotaReached" in changed.said
    assert changed.owned == {"cluster-newer-compute"}
    assert "RoleAssignmentUpdateNotPermitted" not in changed.said


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """What somebody else has taken away, and what the `up` with a refresh said."""

    taken: set[str]
    said: str


@pytest.fixture(scope="module")
def refreshed(dev: CloudProject, changed: Changed) -> Refreshed:
    """Take a role and a cluster away, as somebody else would, then `up --refresh`."""
    owned = dev.owned()
    taken = {owned[each] for each in ("cloud-access-small-data", "cluster-newer-compute")}
    dev.remove_live(*taken)
    assert not taken & dev.live().keys()
    return Refreshed(taken=taken, said=dev.up("--refresh"))


def test_up_with_a_refresh_brings_back_a_role_and_a_cluster(
    dev: CloudProject, refreshed: Refreshed
) -> None:
    assert refreshed.taken <= dev.live().keys()
    assert set(dev.owned().values()) == dev.live().keys()


def test_the_next_up_makes_what_was_refused(dev: CloudProject, refreshed: Refreshed) -> None:
    assert "+ 3 created" in refreshed.said  # with the two that were taken away
    assert "cluster-new-compute" in dev.owned()


def test_what_cannot_change_makes_another_cluster_before_the_old_one_goes(
    dev: CloudProject, changed: Changed, refreshed: Refreshed
) -> None:
    old = {name for name in changed.before if name.partition("-")[0] in {"cpu", "gpu"}}
    after = {
        name.partition("-")[0]: each["vmSize"]
        for name, each in dev.computes().items()
        if name not in changed.before
    }
    size = {key: each["size"] for key, each in dev.settings["clusters"].items()}
    assert after == {key: size[key] for key in ("cpu", "gpu", "new", "newer")}
    assert size["cpu"] == "Standard_D16ds_v4"
    assert not old & dev.computes().keys()
    lines = (dev.azure / "calls.jsonl").read_text().splitlines()
    calls = [json.loads(line) for line in lines]
    done = [call["operation"] for call in calls if "/computes/gpu-" in call.get("id", "")]
    assert [each for each in done if each in {"create", "delete"}] == ["create", "create", "delete"]


def test_numbers_of_a_cluster_change_in_place_and_its_minimum_only_in_the_tag(
    dev: CloudProject, changed: Changed, refreshed: Refreshed
) -> None:
    (name,) = (each for each in changed.before if each.startswith("small-"))
    assert dev.computes()[name]["scaleSettings"] == {
        **changed.before[name]["scaleSettings"],
        "maxNodeCount": 3,
        "nodeIdleTimeBeforeScaleDown": "PT4M",
    }


def test_a_cluster_comes_and_goes_alone(
    dev: CloudProject, changed: Changed, refreshed: Refreshed
) -> None:
    assert {name.rpartition("-")[0] for name in dev.computes()} == {
        *("cpu", "gpu", "small", "new", "newer")
    }
    assert not [name for name in dev.owned() if "spare" in name]
