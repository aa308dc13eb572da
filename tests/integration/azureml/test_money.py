"""Clusters, quotas, prices and imported workspaces, typed as a practitioner would."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure, JobTrouble, forbidden
from tests.infra.cloud_declared import declare_stack

FAMILY_QUOTA = "Standard DSv2 Family Cluster Dedicated vCPUs"
LOW_QUOTA = "Total Cluster LowPriority Regional vCPUs"
CPU = "cpu-1a2b3c"
GPU = "gpu-9f8e7d"
PRICE = 0.27  # of the stand-in's price service


@pytest.fixture
def launch(azure: FakeAzure, tmp_path: Path) -> Iterator[AzureLaunch]:
    """A stack with two clusters, the second of low priority; all as at first again afterwards."""
    records = azure.records
    before = copy.deepcopy(records.clusters[CPU].body)
    azure.add_cluster(
        GPU, size="Standard_NC24ads_A100_v4", priority="LowPriority", max_nodes=8, idle_s=0
    )
    yield AzureLaunch(azure, tmp_path)
    records.clusters[CPU].body = before
    records.clusters[CPU].nodes.clear()
    records.limits.clear()
    records.workspace_limits.clear()


def bodies(azure: FakeAzure, method: str) -> list[Any]:
    return [each.json for each in azure.requests(method=method, path="/computes/")]


def jobs_sent(azure: FakeAzure) -> int:
    return len(azure.requests(method="PUT", path="/jobs/"))


def test_a_cluster_is_kept_warm_let_go_and_resized_and_keeps_all_else(launch: AzureLaunch) -> None:
    cluster = launch.azure.records.clusters[CPU]
    before, sent = copy.deepcopy(cluster.body), len(bodies(launch.azure, "PATCH"))

    refused = launch.type("cluster", "resume", "cpu", "--nodes", "3", "--yes")
    assert refused.code == 3
    assert refused.err == (
        "error: cluster `cpu` may have 2 nodes, not 3\n\n"
        f"hint: launch cluster resize cpu 3 --env {launch.env_file}\n"
    )
    asked = launch.type("cluster", "resume", "cpu")
    assert asked.code == 2
    assert "1 node kept warm: 0.270 USD/h, 6 USD a day, 197 USD a month" in asked.err
    assert len(bodies(launch.azure, "PATCH")) == sent

    warm = launch.type("cluster", "resume", "cpu", "--nodes", "2", "--yes")
    assert (warm.code, warm.out) == (
        0,
        "cluster cpu keeps 2 nodes warm: 0.540 USD/h, 13 USD a day, 394 USD a month\n",
    )
    listed = json.loads(launch.type("cluster", "ls", "--json").out)
    assert [(each["name"], each["nodes"], each["cost_per_hour"]) for each in listed] == [
        ("cpu", 2, 2 * PRICE),
        ("gpu", 0, 0.0),
    ]

    resized = launch.type("cluster", "resize", "cpu", "40")
    assert resized.code == 0
    assert resized.out == "  trainyard:clusters:\n    cpu:\n      max_nodes: 40\n"
    setting = "pulumi config set --path trainyard:clusters.cpu.max_nodes 40 -s dev"
    assert f"for the owner of the stack: to keep it: `{setting}`" in resized.err
    assert f"160 vCPUs (dedicated): 60 more than the 100 of `{cluster_limit()}`" in resized.err

    # The scale alone has moved: identity, closed ports, tags, priority are as they were.
    scale = cluster.scale
    assert scale == {
        "minNodeCount": 2,
        "maxNodeCount": 40,
        "nodeIdleTimeBeforeScaleDown": "PT120S",
    }
    after = copy.deepcopy(cluster.body)
    after["properties"]["properties"]["scaleSettings"] = before["properties"]["properties"][
        "scaleSettings"
    ]
    assert after == before


def cluster_limit() -> str:
    return "Total Cluster Dedicated Regional vCPUs"


def test_pause_names_what_runs_and_waits_until_no_node_is_left(launch: AzureLaunch) -> None:
    cluster = launch.azure.records.clusters[GPU]
    cluster.scale["minNodeCount"] = 2
    assert cluster.take(1, "someone-s-run")
    shown = launch.type("cluster", "show", "gpu")
    assert "nodes       2 (1 idle, 1 running)" in shown.out
    assert "kept warm   1.91 USD/h, 46 USD a day, 1394 USD a month" in shown.out
    assert f"tvmps_{GPU}_0_d  running  10.0.0.4  someone-s-run\n" in shown.out
    # It ends while `pause` looks; the nodes of an idle time of 0 s then go at once.
    launch.azure.records.clusters[GPU].give_back("someone-s-run")
    cluster.nodes[0].run = "someone-s-run"
    paused = launch.type("cluster", "pause", "gpu")
    assert (paused.code, paused.out) == (
        0,
        "cluster gpu has no node and costs nothing; kept warm it cost 1.91 USD/h, 46 USD a day, "
        "1394 USD a month\n",
    )
    assert "runs on it now: someone-s-run; their nodes are released when they end" in paused.err


@pytest.mark.parametrize("spelling", ["whole", "short"])
def test_a_job_that_no_quota_will_hold_is_refused_before_anything_is_sent(
    launch: AzureLaunch, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch.azure.records, "family_names", spelling)
    launch.azure.records.limits[FAMILY_QUOTA] = 6
    job, sent = launch.write_job(nodes=2), jobs_sent(launch.azure)
    refused = launch.type("run", job, "--detach", "--yes")
    assert (refused.code, refused.out) == (3, "")
    assert (
        "error: `first` needs 8 vCPUs (2 nodes of Standard_DS3_v2, dedicated), and the limit of "
        f"`{FAMILY_QUOTA}` is 6: 2 short\n\n"
        "hint: --nodes 1 fits; ask for more at https://ml.azure.com/quota\n"
    ) in refused.err
    assert (jobs_sent(launch.azure), launch.run_dirs()) == (sent, [])


def test_a_cluster_of_another_stack_that_would_hold_the_job_is_named(launch: AzureLaunch) -> None:
    # The other stack's cluster may well have the same physical name.
    other = {**launch.azure.environment(), "stack": "test"}
    other["clusters"]["cpu"]["priority"] = "low_priority"
    put_pulumi(launch, json.dumps(other))
    launch.azure.records.limits[FAMILY_QUOTA] = 6
    refused = launch.type("run", launch.write_job(nodes=2), "--detach", "--yes")
    fitting = "hint: --nodes 1 fits; -s test --cluster cpu fits (0.108 USD/h); ask for more at "
    assert (refused.code, fitting in refused.err) == (3, True), refused.err


def put_pulumi(launch: AzureLaunch, output: str) -> None:
    """A project with the stacks dev and test, and a Pulumi that says the same to everything."""
    pulumi = launch.folder / ".venv" / "bin" / "pulumi"
    pulumi.parent.mkdir(parents=True)
    (launch.folder / "output.json").write_text(output)
    pulumi.write_text("#!/bin/sh\ncat output.json\n")
    pulumi.chmod(0o755)
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml", "Pulumi.test.yaml"):
        (launch.folder / name).write_text("name: trainyard\n")
    assert launch.type("env", "trust", launch.folder, with_environment=False).code == 0


def test_what_only_has_to_wait_or_cannot_be_looked_at_is_started(launch: AzureLaunch) -> None:
    job = launch.write_job()
    launch.azure.records.limits[FAMILY_QUOTA] = 6
    busy = launch.azure.add_cluster("other-111111")
    assert busy.take(1, "others")
    waiting = launch.type("run", job, "--detach", "--yes")
    del launch.azure.records.clusters["other-111111"]
    assert waiting.code == 0
    assert (
        "warning: it may wait in the queue: 4 vCPUs are needed, and of "
        f"`{FAMILY_QUOTA}` 2 are free (4 of 6 used): 2 short\n"
    ) in waiting.err

    launch.azure.script(forbidden(path="*/usages"))
    blind = launch.type("run", job, "--detach", "--yes")
    assert blind.code == 0
    assert "the quota was not checked: " in blind.err


def test_a_run_says_what_it_costs_before_and_after(launch: AzureLaunch) -> None:
    job = launch.write_job(limits={"cost": 0.9}, nodes=2)
    planned = json.loads(launch.type("plan", job, "--json").out)
    limit_s = planned["spec"]["limits"]["wall_clock_s"]
    assert limit_s == pytest.approx(0.9 / (2 * PRICE) * 3600)
    sent = planned["request"]["job"]["body"]["properties"]["limits"]["timeout"]
    assert sent == "PT1H40M"

    ran = launch.type("run", job, "--yes", "--no-fetch")
    assert (ran.code, "launch fetch" in ran.err) == (0, True), ran.err
    assert "price     0.540 USD/h, at most 0.900 USD (list price of 20" in ran.err
    assert re.search(r"\ncost: (under 0.001|about 0.00\d) USD \(2 nodes x ", ran.err), ran.err
    shown = json.loads(launch.type("show", ran.out.split()[0], "--json").out)
    cost = shown["cost"]
    assert cost["amount"] == pytest.approx(PRICE * 2 * cost["ran_s"] / 3600)
    assert (cost["currency"], cost["num_nodes"]) == ("USD", 2)

    again = launch.type("rerun", ran.out.split()[0], "-d", "--yes", "--set", "limits.cost=1.8")
    assert (again.code, "\nlimits    3 h 20 min in all" in again.err) == (0, True), again.err


def test_prices_are_asked_for_once_and_cost_no_plan_where_the_service_is_silent(
    launch: AzureLaunch,
) -> None:
    job = launch.write_job(cluster="gpu")
    cache = launch.folder / "cache"
    launch.environ["XDG_CACHE_HOME"] = str(cache)
    asked = len(launch.azure.requests(host="prices.azure.com"))
    for _ in range(2):
        plan = launch.type("plan", job)
        assert "price     0.955 USD/h (list price of 20" in plan.out
    assert len(launch.azure.requests(host="prices.azure.com")) == asked + 1

    launch.environ["XDG_CACHE_HOME"] = str(launch.folder / "other")
    launch.environ["TRAINYARD_PRICES"] = "table"
    # The table has no price of low priority, and nobody is asked.
    assert "price     unknown" in launch.type("plan", job).out
    assert len(launch.azure.requests(host="prices.azure.com")) == asked + 1


def test_a_workspace_of_others_is_imported_and_used(launch: AzureLaunch) -> None:
    azure, file = launch.azure, launch.folder / "imported.json"
    imported = launch_bare(launch, "env", "import", "--workspace", azure.place.workspace_id)
    assert imported.code == 0, imported.err
    found, ours = json.loads(imported.out), azure.environment()
    clusters = {each["compute"]: each for each in ours["clusters"].values()}
    clusters[GPU]["idle_s"] = 0
    for each in clusters.values():
        each["secrets"] = None  # nobody said which; and not what the nodes reach
    storage = {**ours["storage"], "blob_endpoint": ours["storage"]["blob_endpoint"] + "/"}
    assert found == {
        **ours,
        "stack": azure.place.workspace,
        "network": None,
        "clusters": clusters,
        "storage": {**storage, "folder": None, "datastores": {}},
    }

    launch_bare(launch, "env", "import", "--workspace", azure.place.workspace_id, "-o", file)
    launch.env_file = file
    assert f"{GPU}  Standard_NC24ads_A100_v4" in launch.type("cluster", "ls").out
    resized = launch.type("cluster", "resize", GPU, "7")
    assert (resized.code, resized.out, "pulumi" in resized.err) == (0, "", False)


def test_a_workspace_as_azure_makes_it_is_imported_and_its_own_container_used(
    launch: AzureLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, place = launch.azure.records, launch.azure.place
    fresh = {name: each for name, each in records.datastores.items() if name[:9] == "workspace"}
    monkeypatch.setattr(records, "datastores", fresh)
    monkeypatch.setattr(records, "registry_address", "tydevregistry-a3171.azurecr.io")
    imported = launch_bare(launch, "env", "import", "--workspace", place.workspace_id)
    assert imported.code == 0, imported.err
    container = f"azureml-blobstore-{place.workspace_guid}"
    assert imported.err == f"datasets and runs go to the workspace's own container `{container}`\n"
    found = json.loads(imported.out)
    assert found["registry"] == {"login_server": "tydevregistry-a3171.azurecr.io"}
    assert found["storage"] == {
        "account": place.workspace_account,
        "blob_endpoint": f"https://{place.workspace_account}.blob.core.windows.net/",
        "containers": {"data": container, "runs": container},
        "folder": None,
        "datastores": {container: "workspaceblobstore"},
    }

    launch.env_file = launch.folder / "fresh.json"
    launch.env_file.write_text(imported.out)
    words = launch.folder / "words"
    words.mkdir()
    (words / "a.txt").write_text("from the workspace's own container")
    pushed = launch.type("data", "push", words, "words")
    assert pushed.code == 0, pushed.err
    job = launch.write_job(
        "import os, shutil; shutil.copy(os.environ['TRAINYARD_INPUT_WORDS'] + '/a.txt', "
        "'outputs/a.txt')",
        image=f"registry.azurecr.io/python@sha256:{'a' * 64}",
        inputs={"words": {"dataset": "words", "mode": "mount"}},
    )
    ran = launch.type("run", job, "--yes")
    assert (ran.code, "launch fetch" in ran.err) == (0, False), ran.err
    run = ran.out.split()[0]
    assert (launch.folder / run / "outputs" / "a.txt").read_text() == (words / "a.txt").read_text()
    sent = launch.azure.job(run).body["outputs"]["trainyard_checkpoints"]["uri"]
    assert sent.endswith(f"/datastores/workspaceblobstore/paths/checkpoints/{run}/")


def test_a_registry_that_may_not_be_looked_at_is_known_by_its_name(launch: AzureLaunch) -> None:
    launch.azure.script(forbidden(path="*/registries/*"))
    workspace = launch.azure.place.workspace_id
    imported = launch_bare(launch, "env", "import", "--workspace", workspace)
    registry = {"login_server": "tydevregistry.azurecr.io"}
    assert (imported.code, json.loads(imported.out)["registry"]) == (0, registry)
    assert (
        "the registry's address `tydevregistry.azurecr.io` is taken from its name" in imported.err
    )


def test_an_import_needs_datastores_for_both_containers(launch: AzureLaunch) -> None:
    workspace = launch.azure.place.workspace_id
    refused = launch_bare(launch, "env", "import", "--workspace", workspace, "--data", "mine")
    assert (refused.code, refused.out) == (102, "")
    assert "has no datastores for the containers `mine` and `runs` of one account" in refused.err
    assert "az ml datastore create --file mine.yml" in refused.err
    # Beside `runs`, which is there.
    account = launch.azure.place.data_account
    assert f"--name mine --account-name {account} --auth-mode login" in refused.err
    assert f"'account_name: {account}' 'container_name: mine'" in refused.err
    assert "--name runs" not in refused.err
    assert launch_bare(launch, "env", "import", "--workspace", "mlw").code == 2


def test_what_a_preview_declares_is_held_against_the_quota(launch: AzureLaunch) -> None:
    sizes = {
        "Standard_D4ds_v4": "Standard_DS3_v2",
        "Standard_NC4as_T4_v3": "Standard_NC24ads_A100_v4",
    }
    steps = [
        {"op": "create", "urn": each.name, "newState": {"type": each.type, "inputs": each.inputs}}
        for each in declare_stack("dev")
    ]
    preview = json.dumps({"steps": steps})
    for declared, known in sizes.items():
        preview = preview.replace(declared, known)
    put_pulumi(launch, preview)
    launch.azure.records.limits[LOW_QUOTA] = 40
    words = ("env", "check", "-s", "dev", "--only", "changes", "--json")
    checked = launch.type(*words, with_environment=False)
    assert checked.code == 0, checked.err
    found = json.loads(checked.out)["quota"]
    assert [(each["quota"], each["clusters"], each["needed"], each["short"]) for each in found] == [
        (LOW_QUOTA, ["cpu", "gpu"], 2 * 4 + 2 * 24, 16)
    ]


def test_check_holds_the_clusters_against_the_quota(launch: AzureLaunch) -> None:
    green = launch.type("env", "check", "--json")
    parts = json.loads(green.out)["parts"]
    # A copy of a stack's outputs tells no roles.
    assert (green.code, [each["part"] for each in parts if not each["ok"]]) == (0, ["roles"])

    launch.azure.records.limits[LOW_QUOTA] = 20
    checked = launch.type("env", "check", "--json")
    assert checked.code == 1
    quota = {each["quota"]: each for each in json.loads(checked.out)["quota"]}
    assert quota[LOW_QUOTA] == {
        "quota": LOW_QUOTA,
        "clusters": ["gpu"],
        "needed": 192,
        "used": 0,
        "limit": 20,
        "short": 172,
        "ok": False,
    }
    assert quota[FAMILY_QUOTA]["short"] == 0

    launch.azure.script(forbidden(path="*/usages"))
    blind = launch.type("env", "check", "--json")
    assert json.loads(blind.out)["quota"] is None
    assert "the quota was not checked: our roles do not allow us" in blind.err
    assert "to check it: the owner of the stack adds our group to " in blind.err


def launch_bare(launch: AzureLaunch, *words: str | Path) -> Any:
    """Without an environment file, which `env import` makes."""
    return launch.type(*words, with_environment=False)


def test_a_limit_on_cost_is_sent_as_one_on_time_and_a_rerun_takes_another(
    launch: AzureLaunch,
) -> None:
    launch.azure.script(JobTrouble(what="queued for ever", times=2))
    job = launch.write_job(limits={"cost": 0.9}, nodes=2)
    first = launch.type("run", job, "-d", "--yes")
    assert first.code == 0, first.err
    assert "price     0.540 USD/h, at most 0.900 USD (list price of 20" in first.err
    body = launch.azure.requests(method="PUT", path=f"/jobs/{first.out.strip()}")[-1].json
    assert body["properties"]["limits"]["timeout"] == "PT1H40M"
    again = launch.type("rerun", first.out.strip(), "-d", "--yes", "--set", "limits.cost=1.8")
    assert (again.code, "\nlimits    3 h 20 min in all" in again.err) == (0, True), again.err
