"""A prod that is up: what `launch env check` and a destroy say, what is left, and no kept secret.

`make test` has the same of dev, with one resource protected, in test_life.py.
"""

from __future__ import annotations

import json
import re

import pytest

from infra.roles import Role
from jobs.host.environment_file import parse_environment
from tests.integration.azure_stack.conftest import CloudProject, fresh_project, read_settings
from tests.integration.azure_stack.kept_secrets import find_kept_secrets

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    """One prod that is up for all tests here; the last one alone changes it."""
    with fresh_project(tmp_path_factory.mktemp("guarded") / "prod", "prod") as made:
        made.up()
        yield made


@pytest.fixture
def prod(up: CloudProject) -> CloudProject:
    up.settings = read_settings("prod")
    return up


def check(project, *words):
    """Type `launch env check` with the settings as they are now; its code, its JSON, its talk."""
    project.write_settings()
    words = ["env", "check", "-s", project.stack, "--only", "changes", "--json", *words]
    done = project.launch(*words, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def losses(found):
    names = ("name", "change", "is_protected", "is_allowed")
    return [tuple(each[name] for name in names) for each in found["changes"]["losses"]]


def test_clusters_made_anew_and_taken_out_are_refused_until_each_is_allowed(prod):
    clusters = prod.settings["clusters"]
    clusters["cpu"] |= {"max_nodes": 9, "idle_s": 600}
    clusters["new"] = clusters["gpu-low"]
    clusters["gpu"]["size"] = "Standard_NC24ads_A100_v4"
    del clusters["gpu-low"]
    code, found, said = check(prod, "--allow-replace", "gpu")
    changes = found["changes"]
    # The identity of a cluster and its roles go with the cluster: its name allows all of them.
    roles = [f"cloud-access-gpu-low-{key}" for key in ("data", "images", "runs", "workspace")]
    along = {each["name"]: each["within"] for each in changes["losses"] if each["within"]}
    assert along == dict.fromkeys([*roles, "cloud-identity-gpu-low"], "gpu-low")
    changes["losses"] = [each for each in changes["losses"] if not each["within"]]
    assert (code, losses(found)) == (
        3,
        [("gpu-low", "deleted", False, False), ("gpu", "replaced", False, True)],
    )
    assert changes["losses"][1]["because"] == ["computeName", "vmSize"]
    made = [
        name.replace("gpu-low", "new") for name in [*roles, "cloud-identity-gpu-low", "gpu-low"]
    ]
    assert (changes["updated"], changes["created"]) == (["cpu"], sorted(made))
    assert said.endswith("--allow-replace gpu --allow-replace gpu-low\n")


def test_another_place_for_what_is_protected_is_refused_whatever_is_allowed(prod):
    prod.settings["location"] = "northeurope"
    code, found, said = check(prod, "--allow-replace", "cloud-group")
    assert code == 3
    assert found["changes"]["is_cut_short"]
    assert ("cloud-group", "replaced", True, True) in losses(found)
    assert "would replace or delete protected resources, and Pulumi refuses it: " in said


def test_another_role_below_a_lock_is_refused_whatever_is_allowed(prod):
    prod.settings["clusters"]["gpu"]["write"] = ["data", "runs"]
    code, found, said = check(prod, "--allow-replace", "cloud-access-gpu-data")
    assert code == 3
    (lost,) = found["changes"]["losses"]
    assert (lost["name"], lost["change"]) == ("cloud-access-gpu-data", "replaced")
    assert (lost["is_locked"], lost["is_allowed"]) == (True, True)
    assert "what is below a lock, and Azure refuses it in the middle of `up`: cloud-access" in said


def test_a_setting_that_is_wrong_is_a_failure_in_the_programs_words(prod):
    prod.settings["generation"] = 0
    code, found, said = check(prod)
    assert (code, found) == (1, None)
    assert "error: `pulumi preview -s prod` failed: Pulumi.prod.yaml: " in said
    assert "generation" in said
    assert "Traceback" not in said


def test_the_output_is_what_launch_reads_and_no_secret_is_in_it_or_in_the_state(prod):
    text = prod.pulumi("stack", "output", "environment", "--json", "-s", "prod").stdout
    environment = parse_environment(text[text.index("{") :].encode(), "the test")
    assert (environment.stack, environment.engine) == ("prod", "azureml")
    assert find_kept_secrets(prod) == []


def test_a_destroy_of_prod_deletes_nothing_without_a_preview_either(prod):
    prod.write_settings()
    before, owned = prod.live(), prod.owned()
    assert set(owned.values()) == before.keys()

    for options in (
        (),
        ("--continue-on-error",),
        ("--target", "**Compute**", "--target-dependents"),
    ):
        down = ("destroy", "-s", "prod", "--yes", "--skip-preview", *options)
        said = prod.pulumi(*down, check=False)
        assert said.returncode != 0
        assert "cannot be deleted\n    because it is protected" in said.stdout
        assert prod.live() == before
    assert prod.preview("--expect-no-changes") == {}


def test_a_cluster_of_prod_goes_with_its_settings_and_its_identity_with_it(prod):
    """Its roles, which the locks keep, open nothing without it."""
    prod.write_settings()
    before, owned = prod.live(), prod.owned()
    cluster = prod.settings["clusters"].pop("gpu-low")
    prod.up()
    gone = {owned[each] for each in ("cluster-gpu-low-compute", "cloud-identity-gpu-low")}
    assert before.keys() - prod.live().keys() == gone
    assert not [name for name in prod.owned() if "gpu-low" in name]
    # It comes back as another principal, beside them.
    prod.settings["clusters"]["gpu-low"] = cluster
    prod.up()
    assert prod.owned().keys() == owned.keys()
    assert prod.preview("--expect-no-changes") == {}


def test_another_role_of_a_prods_cluster_by_the_guide(prod):
    """Azure is asked by hand, with the ids that `pulumi stack` shows; `up --refresh` meets the rest."""
    prod.settings["clusters"]["gpu"]["write"] = ["data", "runs"]
    assert "ScopeLocked" in prod.up(check=False)
    shown = prod.pulumi("stack", "-s", "prod", "--show-ids").stdout
    names = ("cloud-lock-data", "cloud-access-gpu-data")
    ids = [
        identifier
        for name in names
        for identifier in re.findall(rf" {name}\n.*(/subscriptions/.*)", shown)
    ]
    owned = prod.owned()
    assert ids == [owned[name] for name in names]
    prod.remove_live(*ids)
    prod.up("--refresh")
    assert prod.owned().keys() == owned.keys()
    assert prod.preview("--expect-no-changes") == {}
    role = prod.live()[prod.owned()["cloud-access-gpu-data"]]
    assert role["inputs"]["roleDefinitionId"].endswith(Role.BLOB_DATA_CONTRIBUTOR)
