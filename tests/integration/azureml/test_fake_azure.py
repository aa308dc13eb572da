"""The stand-in Azure judges, runs and goes wrong as its docstring says."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from tests.fakes.azureml.client import Client

JOBS = "*/jobs/*"
DUMP = """python -c "
import json, os
print(json.dumps(dict(os.environ)))
" """
RUNS_FOR_EVER = "echo begun; sleep 600"


@pytest.fixture
def client(azure: FakeAzure) -> Client:
    return Client(azure)


def error_of(azure: FakeAzure, name: str) -> tuple[str, str]:
    error = azure.wait(name).error
    assert error is not None
    return error["error"]["code"], error["error"]["message"]


# --- Bodies and names --------------------------------------------------------------------------


REFUSED = {
    "unknown": ({"nodes": 2}, "properties.nodes: JobBaseProperties has no such property"),
    "missing": ({"command": ...}, "properties.command: required, and missing"),
    "read-only": ({"status": "Completed"}, "properties.status: read-only"),
    "type": (
        {"distribution": {"distributionType": "Mpi", "processCountPerInstance": "2"}},
        "properties.distribution.processCountPerInstance: '2' is no int",
    ),
    "kind": (
        {"distribution": {"distributionType": "Horovod"}},
        "properties.distribution.distributionType: 'Horovod' is none of Mpi, PyTorch, TensorFlow",
    ),
    "mode": (
        {"inputs": {"data": {"jobInputType": "uri_folder", "uri": "azureml:x", "mode": "Mnt"}}},
        "properties.inputs.data.mode: 'Mnt' is none of ReadOnlyMount, ",
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_body_that_the_models_refuse_is_refused(client: Client, how: str) -> None:
    properties, wrong = REFUSED[how]
    body = client.job("true")
    body["properties"] |= properties
    body["properties"] = {key: each for key, each in body["properties"].items() if each is not ...}
    answer = client.ask("PUT", "/jobs/refused", body)
    assert answer.status_code == 400
    assert wrong in answer.json()["error"]["message"]
    assert client.ask("GET", "/jobs/refused").status_code == 404


def test_a_body_is_judged_by_the_version_that_it_is_sent_for(client: Client) -> None:
    body = client.job("true", queueSettings={"jobTier": "Spot", "priority": 1})
    versions = ("2025-01-01-preview", "2023-08-01-preview", "2021-01-01", "")
    answers = [client.ask("PUT", "/jobs/spot", body, **{"api-version": each}) for each in versions]
    assert [(each.status_code, each.json().get("error", {}).get("code")) for each in answers] == [
        (400, "ValidationError"),  # it has no `priority` any more
        (201, None),
        (400, "NoRegisteredProviderFound"),
        (400, "MissingApiVersionParameter"),
    ]


def test_a_job_put_twice_is_one_job_and_another_under_its_name_is_refused(
    azure: FakeAzure, client: Client
) -> None:
    body = client.job("echo once >> outputs/times; sleep 0.3")
    answers = [client.ask("PUT", "/jobs/twice", body).status_code for _ in range(2)]
    body["properties"]["command"] = "echo other"
    refused = client.ask("PUT", "/jobs/twice", body)
    assert [*answers, refused.status_code] == [201, 200, 400]
    assert "existing job's command cannot be changed" in refused.json()["error"]["message"]
    assert azure.wait("twice").state == "Completed"
    assert client.log("twice", "outputs/times") == "once\n"


def test_ten_thousand_jobs_come_in_pages_newest_first(azure: FakeAzure, client: Client) -> None:
    azure.records.add_past_jobs(10_000, compute="cpu-1a2b3c")
    page = client.ask("GET", "/jobs").json()
    names = [job["name"] for job in page["value"]]
    while "nextLink" in page and len(names) < 300:
        page = client.session.get(page["nextLink"]).json()
        names += [job["name"] for job in page["value"]]
    assert names == [f"past-{number:05d}" for number in range(9_999, 9_699, -1)]


# --- What a process is told --------------------------------------------------------------------


def values_of(client: Client, name: str, logs: list[str]) -> list[Any]:
    """What each process has printed, as JSON."""
    job = client.azure.wait(name)
    assert job.state == "Completed", job.error
    return [json.loads(client.log(name, f"user_logs/{log}")) for log in logs]


def test_each_pytorch_process_knows_its_rank_and_node(azure: FakeAzure, client: Client) -> None:
    azure.add_cluster("wide", max_nodes=2)
    client.submit(
        "torch",
        DUMP,
        distribution={"distributionType": "PyTorch", "processCountPerInstance": 2},
        resources={"instanceCount": 2},
        computeId=f"{azure.place.workspace_id}/computes/wide",
    )
    logs = [f"std_log_process_{rank}.txt" for rank in range(4)]
    found = values_of(client, "torch", logs)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "AZUREML_RUN_ID")
    assert [[each[name] for name in names] for each in found] == [
        ["0", "4", "0", "0", "127.0.0.1", "torch"],
        ["1", "4", "1", "0", "127.0.0.1", "torch"],
        ["2", "4", "0", "1", "127.0.0.1", "torch"],
        ["3", "4", "1", "1", "127.0.0.1", "torch"],
    ]
    assert len({each["MASTER_PORT"] for each in found}) == 1


def test_each_tensorflow_process_finds_all_tasks_and_servers_end_with_the_workers(
    azure: FakeAzure, client: Client
) -> None:
    # A server never ends by itself; worker 0, on the same node, waits for it.
    command = """echo $TF_CONFIG
        case $TF_CONFIG in
            *'"ps", "index": 0'*) touch up; sleep 600;;
            *'"worker", "index": 0'*) while [ ! -e up ]; do sleep 0.05; done;;
        esac"""
    client.submit(
        "tensorflow",
        command,
        distribution={
            "distributionType": "TensorFlow",
            "workerCount": 2,
            "parameterServerCount": 1,
        },
        resources={"instanceCount": 2},
    )
    logs = ["00_worker", "01_worker", "00_ps"]
    configs = values_of(client, "tensorflow", [f"std_log_node_{each}.txt" for each in logs])
    assert [each["task"] for each in configs] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
        {"type": "ps", "index": 0},
    ]
    cluster = configs[0]["cluster"]
    assert [each["cluster"] for each in configs] == [cluster] * 3
    assert {role: len(members) for role, members in cluster.items()} == {"worker": 2, "ps": 1}


def test_horovod_reduces_over_the_ranks_of_two_nodes(azure: FakeAzure, client: Client) -> None:
    train = (
        "import horovod.torch as hvd, os, torch\n"
        "hvd.init()\n"
        "total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum)\n"
        "local = os.environ['OMPI_COMM_WORLD_LOCAL_RANK']\n"
        "print(hvd.rank(), hvd.size(), local, total.item(), flush=True)\n"
        "hvd.shutdown()\n"
    )
    client.submit(
        "horovod",
        "python train.py",
        image="registry/pytorch:1",
        codeId=client.put_code({"train.py": train}),
        distribution={"distributionType": "Mpi", "processCountPerInstance": 1},
        resources={"instanceCount": 2, "shmSize": "2g"},
    )
    job = azure.wait("horovod")
    assert job.state == "Completed", job.error
    lines = [client.log("horovod", f"user_logs/std_log_process_{rank}.txt") for rank in range(2)]
    assert [line.splitlines()[-1] for line in lines] == ["0 2 0 3.0", "1 2 0 3.0"]


# --- Data and identity -------------------------------------------------------------------------


def test_inputs_come_from_the_store_and_outputs_go_there(azure: FakeAzure, client: Client) -> None:
    data = azure.blobs.container(azure.place.data_account, "data")
    data.upload_blob("digits/1/a", b"one", overwrite=True)
    uri = "azureml://datastores/data/paths/digits/1"
    client.submit(
        "moves",
        "echo ${{inputs.word}} $(cat ${{inputs.mounted}}/a) $(cat $AZURE_ML_INPUT_file) "
        "${{inputs.direct}} > ${{outputs.results}}/said && test ! -e ${{outputs.results}}/none",
        inputs={
            "word": {"jobInputType": "literal", "value": "hello"},
            "mounted": {"jobInputType": "uri_folder", "uri": uri, "mode": "ReadOnlyMount"},
            "file": {"jobInputType": "uri_file", "uri": f"{uri}/a", "mode": "Download"},
            "direct": {"jobInputType": "uri_folder", "uri": uri, "mode": "Direct"},
        },
        outputs={
            "results": {
                "jobOutputType": "uri_folder",
                "uri": "azureml://datastores/runs/paths/moves/results",
                "mode": "ReadWriteMount",
            }
        },
    )
    job = azure.wait("moves")
    assert job.state == "Completed", job.error
    said = azure.blobs.open(azure.place.data_account, "runs").download_blob("moves/results/said")
    assert said.readall().decode() == f"hello one one {uri}\n"


def test_an_input_that_is_not_there_fails_the_job(azure: FakeAzure, client: Client) -> None:
    uri = "azureml://datastores/data/paths/nowhere"
    client.submit("lacks", "true", inputs={"a": {"jobInputType": "uri_folder", "uri": uri}})
    assert error_of(azure, "lacks") == (
        "UserError",
        f"AzureMLCompute job failed. DataAccessError(NotFound): {uri}",
    )


def test_a_process_gets_secrets_by_the_identity_of_its_node(
    azure: FakeAzure, client: Client
) -> None:
    azure.vault.secrets["wandb-key"] = "s3cr3t"
    azure.vault.readers = {azure.place.cluster_client_id}
    program = (
        "import json, os, urllib.request as web\n"
        "ask = lambda url, **h: json.load(web.urlopen(web.Request(url, headers=h)))\n"
        "e = os.environ\n"
        "url = e['MSI_ENDPOINT'] + '?api-version=2017-09-01&resource=https://vault.azure.net'\n"
        "url += '&clientid=' + e['DEFAULT_IDENTITY_CLIENT_ID']\n"
        "token = ask(url, secret=e['MSI_SECRET'])['access_token']\n"
        f"url = 'https://{azure.place.key_vault}.vault.azure.net/secrets/wandb-key'\n"
        "found = ask(url + '?api-version=7.4', Authorization='Bearer ' + token)\n"
        "print(len(found['value']))\n"
    )
    client.submit("secret", "python p.py", codeId=client.put_code({"p.py": program}))
    assert azure.wait("secret").state == "Completed", client.log("secret", "user_logs/std_log.txt")
    assert client.log("secret", "user_logs/std_log.txt") == "6\n"


# --- The end of a job --------------------------------------------------------------------------


def test_a_failed_process_fails_the_job_with_its_log_and_traceback(
    azure: FakeAzure, client: Client
) -> None:
    client.submit("fails", "python -c 'raise SystemError(7)'")
    code, message = error_of(azure, "fails")
    assert code == "UserError"
    assert message.startswith(
        "Execution failed. User process 'bash' exited with status code 1. Please check log file "
        "'user_logs/std_log.txt' for error details. Error: Traceback (most recent call last):"
    )
    assert message.endswith("SystemError: 7\n")


def test_a_cancelled_job_is_asked_to_end_first(azure: FakeAzure, client: Client) -> None:
    client.submit("stopped", "trap 'echo asked; exit 1' TERM; echo begun; sleep 600 & wait")
    wait_for(lambda: "begun" in log_or_none(client, "stopped"))
    answer = client.ask("POST", "/jobs/stopped/cancel")
    assert answer.status_code == 202
    assert azure.wait("stopped").states[-2:] == ["CancelRequested", "Canceled"]
    assert client.log("stopped", "user_logs/std_log.txt") == "begun\nasked\n"
    assert client.session.get(answer.headers["Location"]).status_code == 200


def test_a_time_limit_ends_a_job(azure: FakeAzure, client: Client) -> None:
    client.submit("late", "sleep 600", limits={"jobLimitsType": "Command", "timeout": "PT1S"})
    job = azure.wait("late")
    assert (job.state, job.warnings) == ("Canceled", ["The run exceeded its maximum duration."])


# --- What goes wrong ---------------------------------------------------------------------------


def wait_for(is_so: Callable[[], bool]) -> None:
    import time

    deadline = time.monotonic() + 200
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def log_or_none(client: Client, name: str) -> str:
    from azure.core.exceptions import ResourceNotFoundError

    try:
        return client.log(name, "user_logs/std_log.txt")
    except ResourceNotFoundError:
        return ""


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
    assert error_of(azure, "spot-1") == (
        "UserError",
        "AzureMLCompute job failed. PreemptionError: Nodes of this job got pre-empted. Check if "
        "the run has failed or restarted. Reason: Received pre-emption warning signal",
    )
    assert azure.records.clusters["spot"].nodes == []
    client.submit("spot-2", command, computeId=compute, outputs=outputs)
    assert azure.wait("spot-2").state == "Completed"
    kept = azure.blobs.open(azure.place.data_account, "runs").download_blob("kept/steps").readall()
    assert kept.decode().splitlines() == ["step 1", "step 2", "step 3"] * 2


def test_a_job_that_azure_restarts_keeps_its_name_and_its_first_log(
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
        ("image pull", "UserError", "AzureMLCompute job failed. FailedPullingImage:"),
    ],
)
def test_other_losses_fail_a_job_with_their_reason(
    azure: FakeAzure, client: Client, what: Any, code: str, message: str
) -> None:
    name = what.replace(" ", "-")
    azure.script(JobTrouble(what=what, job=name))
    client.submit(name, RUNS_FOR_EVER)
    found = error_of(azure, name)
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
def test_a_log_begins_anew(azure: FakeAzure, client: Client, what: Any, old: str | None) -> None:
    name = what.replace(" ", "-")
    azure.script(JobTrouble(what=what, job=name, when="2"))
    client.submit(name, "echo 1; echo 2; while [ ! -e go ]; do sleep 0.05; done; echo 3")
    wait_for(lambda: azure.job(name).state == "Running")
    wait_for(lambda: not log_or_none(client, name) and _has_log(client, name))
    (azure.folder / "jobs" / name / "node-0" / "wd" / "go").touch()
    assert azure.wait(name).state == "Completed"
    assert client.log(name, "user_logs/std_log.txt") == "3\n"
    blobs = azure.blobs.open(azure.place.workspace_account, "azureml")
    kept = blobs.get_blob_client(f"ExperimentRun/dcid.{name}/user_logs/retry_001/std_log.txt")
    assert kept.exists() == (old is not None)
    assert old is None or kept.download_blob().readall().decode() == old


def _has_log(client: Client, name: str) -> bool:
    azure = client.azure
    prefix = f"ExperimentRun/dcid.{name}/user_logs/std_log.txt"
    return prefix in set(azure.blobs.names(azure.place.workspace_account, "azureml", prefix))


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
