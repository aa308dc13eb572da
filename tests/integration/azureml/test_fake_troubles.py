"""The stand-in Azure goes wrong as a test has scripted it, and as its docstring says."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.fakes.azureml import (
    FakeAzure,
    JobTrouble,
    firewall,
    lost_reply,
    lost_request,
    throttled,
)
from tests.fakes.azureml.client import Client, wait_for

# Proofs of the stand-in itself.
pytestmark = pytest.mark.faults

JOBS = "*/jobs/*"
RUNS_FOR_EVER = "echo begun; sleep 600"


def test_a_preempted_job_fails_and_its_successor_finds_what_it_had_mounted(
    azure: FakeAzure, client: Client
) -> None:
    azure.add_cluster("spot", priority="LowPriority", max_nodes=1)
    command = (
        "cat ${{outputs.kept}}/steps; for i in 1 2 3; do echo step $i | "
        "tee -a ${{outputs.kept}}/steps; done; test $(wc -l < ${{outputs.kept}}/steps) -gt 3 || "
        "sleep 600"
    )
    outputs = {
        "kept": {
            "jobOutputType": "uri_folder",
            "uri": "azureml://datastores/runs/paths/kept",
            "mode": "ReadWriteMount",
        }
    }
    compute = f"{azure.place.workspace_id}/computes/spot"
    azure.script(JobTrouble(what="preempted", job="spot-1", when="step 3"))
    client.submit("spot-1", command, computeId=compute, outputs=outputs)
    assert client.error("spot-1") == (
        "UserError",
        "AzureMLCompute job failed. PreemptionError: Nodes of this job got pre-empted. Check if "
        "the run has failed or restarted. Reason: Received pre-emption warning signal",
    )
    assert azure.records.clusters["spot"].nodes == []
    client.submit("spot-2", command, computeId=compute, outputs=outputs)
    assert azure.wait("spot-2").state == "Completed"
    kept = azure.blobs.open(azure.place.data_account, "runs").download_blob("kept/steps").readall()
    assert kept.decode().splitlines() == ["step 1", "step 2", "step 3"] * 2


def test_a_job_that_azure_restarts_keeps_its_name_and_its_first_log_as_the_stand_in_says(
    azure: FakeAzure, client: Client
) -> None:
    azure.script(JobTrouble(what="preempted, restarted", job="again", when="first"))
    outputs = {
        "kept": {
            "jobOutputType": "uri_folder",
            "uri": "azureml://datastores/runs/paths/again",
            "mode": "ReadWriteMount",
        }
    }
    command = (
        "cd ${{outputs.kept}}; test -e was && echo second || { touch was; echo first; sleep 600; }"
    )
    client.submit("again", command, outputs=outputs)
    job = azure.wait("again")
    assert (job.state, job.states.count("Queued"), job.states.count("Running")) == (
        "Completed",
        2,
        2,
    )
    logs = ("user_logs/std_log.txt", "user_logs/retry_001/std_log.txt")
    assert [client.log("again", log) for log in logs] == ["second\n", "first\n"]


@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ("node failure", "SystemError", "AzureMLCompute job failed. JobNodeLost:"),
        ("image pull", "UserError", "AzureMLCompute job failed.\nFailedPullingImage:"),
    ],
)
def test_other_losses_fail_a_job_with_their_reason_as_the_stand_in_says(
    azure: FakeAzure, client: Client, what: Any, code: str, message: str
) -> None:
    """Nobody has quoted what Azure says of a lost node; of a pull somebody has."""
    name = what.replace(" ", "-")
    azure.script(JobTrouble(what=what, job=name))
    client.submit(name, RUNS_FOR_EVER)
    found = client.error(name)
    assert (found[0], found[1][: len(message)]) == (code, message)


@pytest.mark.parametrize("fails", [False, True], ids=["built", "failed"])
def test_an_image_is_built_before_the_job_with_a_log_of_its_own(
    azure: FakeAzure, client: Client, fails: bool
) -> None:
    name = f"build-{fails}"
    code = client.put_code({"Dockerfile": "FROM scratch"})
    context = azure.records.codes[tuple(code.split("/")[-3::2])]["properties"]["codeUri"]
    build = {"contextUri": context, "dockerfilePath": "Dockerfile"}
    path = f"/environments/python-{fails}/versions/1"
    made = client.ask("PUT", path, {"properties": {"build": build}})
    if fails:
        azure.script(JobTrouble(what="image build", job=name))
    client.submit(name, "true", environmentId=made.json()["id"])
    job = azure.wait(name)
    assert (job.state, "Preparing" in job.states) == ("Failed" if fails else "Completed", True)
    log = client.log(name, "azureml-logs/20_image_build_log.txt").splitlines()
    assert log[:2] == ["Sending build context to Docker daemon", "  Dockerfile"]
    assert ("non-zero code" in log[-1]) == fails


def test_a_job_without_quota_waits_until_it_is_cancelled(azure: FakeAzure, client: Client) -> None:
    azure.add_cluster("dear", size="Standard_NC24ads_A100_v4")
    azure.script(JobTrouble(what="quota", job="dear"))
    client.submit("dear", "true", computeId=f"{azure.place.workspace_id}/computes/dear")
    wait_for(lambda: azure.job("dear").state == "Queued")
    wait_for(lambda: bool(azure.records.clusters["dear"].errors))
    errors = client.ask("GET", "/computes/dear").json()["properties"]["properties"]["errors"]
    assert errors[0]["error"]["code"] == "ClusterCoreQuotaReached"
    client.ask("POST", "/jobs/dear/cancel")
    assert azure.wait("dear").state == "Canceled"


@pytest.mark.parametrize(
    ("what", "old"), [("log rotated", "1\n2\n"), ("log truncated", None)], ids=["rotated", "cut"]
)
def test_a_log_begins_anew_as_the_stand_in_says(
    azure: FakeAzure, client: Client, what: Any, old: str | None
) -> None:
    name = what.replace(" ", "-")
    azure.script(JobTrouble(what=what, job=name, when="2"))
    client.submit(name, "echo 1; echo 2; while [ ! -e go ]; do sleep 0.05; done; echo 3")
    wait_for(lambda: azure.job(name).state == "Running")
    wait_for(lambda: not client.log_so_far(name) and client.has_log(name))
    (azure.folder / "jobs" / name / "node-0" / "wd" / "go").touch()
    assert azure.wait(name).state == "Completed"
    assert client.log(name, "user_logs/std_log.txt") == "3\n"
    blobs = azure.blobs.open(azure.place.workspace_account, "azureml")
    kept = blobs.get_blob_client(f"ExperimentRun/dcid.{name}/user_logs/retry_001/std_log.txt")
    assert kept.exists() == (old is not None)
    assert old is None or kept.download_blob().readall().decode() == old


def test_scripted_answers_come_so_often_and_then_the_truth(
    azure: FakeAzure, client: Client
) -> None:
    azure.script(throttled(path=JOBS, method="PUT", retry_after_s=3, times=2))
    body = client.job("true")
    answers = [client.ask("PUT", "/jobs/throttled", body) for _ in range(3)]
    assert [each.status_code for each in answers] == [429, 429, 201]
    assert [each.headers.get("Retry-After") for each in answers] == ["3", "3", None]


def test_a_lost_reply_leaves_a_job_and_a_lost_request_none(
    azure: FakeAzure, client: Client
) -> None:
    for name, trouble in (("made", lost_reply(path=JOBS)), ("none", lost_request(path=JOBS))):
        body = client.job("true")
        azure.script(trouble)
        with pytest.raises(requests.ConnectionError):
            client.ask("PUT", f"/jobs/{name}", body)
    found = [client.ask("GET", f"/jobs/{name}").status_code for name in ("made", "none")]
    assert found == [200, 404]


def test_a_token_ends_and_another_opens_again(azure: FakeAzure, client: Client) -> None:
    address = f"https://{azure.place.data_account}.blob.core.windows.net/data?restype=container"
    token = azure.tokens.give("https://storage.azure.com")
    headers = {"Authorization": f"Bearer {token}", "x-ms-version": "2023-11-03"}
    assert client.session.get(address, headers=headers).status_code == 200
    azure.tokens.expire()
    refused = client.session.get(address, headers=headers)
    assert (refused.status_code, refused.headers["x-ms-error-code"]) == (
        401,
        "InvalidAuthenticationInfo",
    )
    refused = client.ask("GET", "")
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "ExpiredAuthenticationToken"
    assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]
    client.authorize()
    assert client.ask("GET", "").status_code == 200


def test_a_firewall_refuses_the_storage_alone(azure: FakeAzure, client: Client) -> None:
    azure.script(firewall(account=azure.place.data_account))
    address = f"https://{azure.place.data_account}.blob.core.windows.net/data?restype=container"
    refused = client.session.get(address)
    assert (refused.status_code, refused.headers["x-ms-error-code"]) == (
        403,
        "AuthorizationFailure",
    )
    assert client.ask("GET", "/jobs").status_code == 200


def test_a_workspace_that_is_gone_is_not_found(azure: FakeAzure, client: Client) -> None:
    azure.delete_workspace()
    refused = client.ask("GET", "/jobs")
    azure.records.is_workspace_deleted = False
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "ResourceNotFound")


def test_no_other_name_is_reached(client: Client) -> None:
    with pytest.raises(requests.exceptions.ProxyError):
        client.session.get("https://example.com/")


def test_a_cluster_counts_its_nodes_and_keeps_its_size(azure: FakeAzure, client: Client) -> None:
    azure.add_cluster("kept", max_nodes=4)
    body = client.ask("GET", "/computes/kept").json()
    declared = {
        "location": body["location"],
        "properties": {
            "computeType": "AmlCompute",
            "properties": {
                "vmSize": "Standard_NC24ads_A100_v4",
                "scaleSettings": {
                    "minNodeCount": 2,
                    "maxNodeCount": 4,
                    "nodeIdleTimeBeforeScaleDown": "PT120S",
                },
            },
        },
    }
    made = client.ask("PUT", "/computes/kept", declared).json()["properties"]["properties"]
    assert (made["vmSize"], made["currentNodeCount"], made["nodeStateCounts"]["idleNodeCount"]) == (
        "Standard_DS3_v2",
        2,
        2,
    )
    declared["properties"]["properties"]["scaleSettings"]["minNodeCount"] = 5
    assert client.ask("PUT", "/computes/kept", declared).status_code == 400
