"""The stand-in Azure judges and runs as its docstring says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.azureml import FakeAzure
from tests.fakes.azureml.client import Client, wait_for

# Proofs of the stand-in itself.
pytestmark = pytest.mark.faults

DUMP = """python -c "
import json, os
print(json.dumps(dict(os.environ)))
" """


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


def test_a_job_put_twice_is_one_job_and_another_of_its_name_is_refused_as_the_stand_in_says(
    azure: FakeAzure, client: Client
) -> None:
    """201 and 200 are the specification's answers (azure-rest-api-specs, 2024-04-01-preview).

    Of a job that is there already its examples/Job/CommandJob/createOrUpdate.json says no more: U36
    of tools/prove_azure/unknowns.py.
    """
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


def test_an_input_that_is_not_there_fails_the_job_as_the_stand_in_says(
    azure: FakeAzure, client: Client
) -> None:
    uri = "azureml://datastores/data/paths/nowhere"
    client.submit("lacks", "true", inputs={"a": {"jobInputType": "uri_folder", "uri": uri}})
    assert client.error("lacks") == (
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


def test_a_failed_process_fails_the_job_with_its_log_and_traceback_as_the_stand_in_says(
    azure: FakeAzure, client: Client
) -> None:
    client.submit("fails", "python -c 'raise SystemError(7)'")
    code, message = client.error("fails")
    assert code == "UserError"
    assert message.startswith(
        "Execution failed. User process 'bash' exited with status code 1. Please check log file "
        "'user_logs/std_log.txt' for error details. Error: Traceback (most recent call last):"
    )
    assert message.endswith("SystemError: 7\n")


def test_a_cancelled_job_is_asked_to_end_first(azure: FakeAzure, client: Client) -> None:
    client.submit("stopped", "trap 'echo asked; exit 1' TERM; echo begun; sleep 600 & wait")
    wait_for(lambda: "begun" in client.log_so_far("stopped"))
    answer = client.ask("POST", "/jobs/stopped/cancel")
    assert answer.status_code == 202
    assert azure.wait("stopped").states[-2:] == ["CancelRequested", "Canceled"]
    assert client.log("stopped", "user_logs/std_log.txt") == "begun\nasked\n"
    assert client.session.get(answer.headers["Location"]).status_code == 200


def test_a_time_limit_ends_a_job_as_the_stand_in_says(azure: FakeAzure, client: Client) -> None:
    client.submit("late", "sleep 600", limits={"jobLimitsType": "Command", "timeout": "PT1S"})
    job = azure.wait("late")
    assert (job.state, job.warnings) == ("Canceled", ["The run exceeded its maximum duration."])
