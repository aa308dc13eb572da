"""What Azure says no to: a clear message, or tried again; and the next `up` goes on from there.

Codes are Azure's where tests/fakes/azure_native/refusals.py names a page or an issue; words of quota,
of a creation that fails later and of a deletion that is refused are as the stand-in says.
"""

from __future__ import annotations

import getpass
import os
import signal

import pytest

from tests.busy import HANG_S
from tests.fakes.azure_native import FAILS_LATER, HANG, HANG_AFTER, QUOTA, THROTTLED

VAULT = {"type": "*:keyvault:Vault"}


@pytest.mark.faults
def test_quota_is_named_and_costs_one_cluster_while_the_rest_is_tried_until_it_works(new_project):
    """Throttled requests and identities that Azure does not know everywhere yet are no failure."""
    project = new_project("dev")
    throttled = THROTTLED | {"type": "*:storage:*", "times": 3}
    project.script(replication_s=1, failures=[throttled, QUOTA | {"name": "gpu-*"}])
    said = project.up(check=False)
    assert "ClusterCoreQuotaReached" in said
    assert "2 errored" in said  # the cluster, and with it the stack
    assert "cluster-gpu-compute" not in project.resources()

    assert "+ 1 created" in project.up()
    assert set(project.owned().values()) == project.live().keys()


def test_while_one_up_waits_another_is_refused_by_name_and_after_a_kill_all_is_taken_over(
    new_project,
):
    project = new_project("dev")
    project.script(failures=[HANG_AFTER | VAULT])
    waiting = project.start_up()
    project.wait_until_used_up(waiting)
    said = "EOF"
    # What Pulumi meets that reads a record in the moment in which another one writes it.
    while said.strip().endswith("EOF"):
        said = project.up(check=False)
    assert "the stack is currently locked" in said
    assert f"{getpass.getuser()}@" in said
    assert f"pid {waiting.pid}" in said
    repair = project.launch("env", "repair", "-s", "dev", check=False)
    assert repair.returncode == 3
    assert f"pid {waiting.pid}" in repair.stderr

    os.kill(waiting.pid, signal.SIGKILL)
    waiting.wait()
    repaired = project.launch("env", "repair", "-s", "dev").stdout
    assert "removed the lock" in repaired
    assert "taken over: cloud-vault, whose creation was interrupted" in repaired
    assert project.plugins() == []
    project.up()
    assert set(project.owned().values()) == project.live().keys()
    assert project.preview() == {}


@pytest.mark.faults
def test_a_create_that_never_came_to_be_is_forgotten_after_a_kill(new_project):
    project = new_project("dev")
    project.script(failures=[HANG | VAULT])
    waiting = project.start_up()
    project.wait_until_used_up(waiting)
    os.kill(waiting.pid, signal.SIGKILL)
    waiting.wait()

    assert "cleared: creating cloud-vault" in project.launch("env", "repair", "-s", "dev").stdout
    project.up()
    assert set(project.owned().values()) == project.live().keys()


@pytest.mark.faults
def test_a_name_that_somebody_else_has_is_told_and_another_one_works(new_project):
    project = new_project("dev")
    project.up()
    account = project.owned()["cloud-data-account"].rpartition("/")[2]
    project.destroy()
    project.script(taken_names=[account])
    project.settings["generation"] = 2
    said = project.up(check=False)
    assert account in said
    assert "StorageAccountAlreadyTaken" in said

    project.settings["name"] = "other"
    project.up()
    assert set(project.owned().values()) == project.live().keys()


@pytest.mark.faults
def test_what_azure_accepts_and_then_fails_is_mended_by_the_next_up(new_project):
    project = new_project("dev")
    project.script(failures=[FAILS_LATER | {"type": "*:Compute", "name": "gpu-*"}])
    said = project.up(check=False)
    assert "InternalServerError" in said

    project.up()
    assert set(project.owned().values()) == project.live().keys()
    assert project.preview() == {}


@pytest.mark.faults
def test_an_up_that_is_interrupted_ends_by_itself_and_can_go_on(new_project):
    project = new_project("dev")
    project.script(failures=[HANG | VAULT])
    waiting = project.start_up()
    project.wait_until_used_up(waiting)
    os.kill(waiting.pid, signal.SIGINT)
    assert waiting.wait(timeout=HANG_S) != 0

    project.up()
    assert set(project.owned().values()) == project.live().keys()


# A guess: REST calls the argument required, and the provider sends none (docs/azure.md).
NEEDS_ACTION = {
    "operation": "delete",
    "type": "*:Compute",
    "times": None,
    "status": 400,
    "code": "BadRequest",
    "message": "The value of query parameter underlyingResourceAction is missing.",
}


@pytest.mark.faults
def test_a_cluster_whose_deletion_azure_refuses_is_deleted_by_az_as_the_stand_in_says(new_project):
    """As docs/azure.md says, for a changed size and for a destroy."""
    project = new_project("dev")
    project.up()
    old = project.owned()["cluster-cpu-compute"]
    project.script(failures=[NEEDS_ACTION])
    project.settings["clusters"]["cpu"]["size"] = "Standard_D16ds_v4"
    assert "underlyingResourceAction is missing" in project.up(check=False)
    project.remove_live(old)  # az ml compute delete
    project.pulumi("up", "--refresh", "-s", "dev", "--yes", "--skip-preview")
    assert set(project.owned().values()) == project.live().keys()
    assert project.preview() == {}

    down = ("destroy", "-s", "dev", "--yes", "--skip-preview")
    said = project.pulumi(*down, check=False)
    assert said.returncode != 0
    assert "underlyingResourceAction is missing" in said.stdout
    project.remove_live(*(each for each in project.live() if "/computes/" in each))
    project.pulumi(*down, "--refresh")
    assert project.live() == {}
