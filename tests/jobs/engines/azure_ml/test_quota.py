"""What Azure's quotas leave of a job or a cluster."""

from __future__ import annotations

import msgspec
import pytest

from jobs.contracts.errors import Refused
from jobs.engines.azure_ml.quota import (
    Quota,
    QuotaCheck,
    check_clusters,
    check_job,
    cluster_text,
    quotas_of,
    read_quotas,
)
from jobs.engines.azure_ml.refusals import CloudRefusal
from tests.fakes.cloud_stack import WORKSPACE, make_cloud_environment
from tests.fakes.gangs import make_spec

KIND = "Microsoft.MachineLearningServices"
FAMILY = "standard NCASv3_T4 Family"
FAMILY_QUOTA = "Standard NCASv3_T4 Family Cluster Dedicated vCPUs"
DEDICATED = "Total Cluster Dedicated Regional vCPUs"
LOW = "Total Cluster LowPriority Regional vCPUs"


def usage(kind, name, used, limit, owner="/subscriptions/S"):
    return {
        "id": f"{owner}/usages/{name.replace(' ', '_')}",
        "type": f"{KIND}/{kind}/usages",
        "currentValue": used,
        "limit": limit,
        "name": {"value": name, "localizedValue": name},
        "unit": "Count",
    }


# Shaped as azure-rest-api-specs, machinelearningservices 2024-04-01, examples/Usage/list.json.
USAGES = [
    usage("totalCores", "Clusters", 7, 100),
    usage("dedicatedCores", DEDICATED, 14, 240),
    usage("vmFamily", FAMILY_QUOTA, 64, 192),
    usage("vmFamily", "Standard NC Family Cluster Dedicated vCPUs", 0, 12),
    usage("workspaces", FAMILY_QUOTA, 64, 128, owner=WORKSPACE),
    usage("workspaces", FAMILY_QUOTA, 0, 1, owner=f"{WORKSPACE}2"),
    usage("workspaces/computes", FAMILY_QUOTA, 64, 2, owner=f"{WORKSPACE}/computes/gpu-4d5e6f"),
    usage("lowPriorityCores", LOW, 18, 50),
    usage("vmFamily", "Standard NCASv3_T4 Family Cluster LowPriority vCPUs", 18, -1),
]


class FakeClient:
    """Answers as Azure would for one environment."""

    def __init__(self, environment, usages=USAGES, idle=0):
        self.environment, self.usages, self.idle = environment, usages, idle
        self.workspace = environment.workspace.id

    def pages(self, path, **_):
        assert path == f"/subscriptions/S/providers/{KIND}/locations/westeurope/usages"
        if isinstance(self.usages, Exception):
            raise self.usages
        return iter(self.usages)

    def find(self, path, **_):
        assert path == f"{WORKSPACE}/computes/gpu-4d5e6f"
        live = {"nodeStateCounts": {"idleNodeCount": self.idle}, "currentNodeCount": self.idle}
        return {"properties": {"provisioningState": "Succeeded", "properties": live}}


def environment(priority="dedicated", **changes):
    made = make_cloud_environment()
    cpu = msgspec.structs.replace(made.clusters["cpu"], family="standardDDSv4Family")
    changes = {"family": FAMILY, "priority": priority, "max_nodes": 4, **changes}
    gpu = msgspec.structs.replace(made.clusters["gpu"], **changes)
    return msgspec.structs.replace(made, clusters={"cpu": cpu, "gpu": gpu})


def spec(nodes, cluster="gpu"):
    return msgspec.structs.replace(make_spec(["true"]), name="j", cluster=cluster, nodes=nodes)


def quotas(where):
    return quotas_of(where.clusters["gpu"], where, read_quotas(FakeClient(where)))


def test_dedicated_nodes_count_in_region_family_and_the_share_of_the_workspace():
    assert quotas(environment()) == [
        Quota(name=DEDICATED, used=14, limit=240),
        Quota(name=FAMILY_QUOTA, used=64, limit=192),
        Quota(name=f"{FAMILY_QUOTA} of this workspace", used=64, limit=128),
    ]


def short(kind, value, words, limit):
    """A family's row as Azure was seen to spell it."""
    row = usage(kind, value, 0, limit)
    return {**row, "name": {"value": value, "localizedValue": words}}


NEW_SUBSCRIPTION = [
    usage("dedicatedCores", DEDICATED, 0, 24),
    usage("lowPriorityCores", LOW, 0, 100),
    short("vmFamily/dedicatedCores", "standardNCASv3_T4Family", FAMILY_QUOTA, 0),
    short("vmFamily/dedicatedCores", "standardNCSv3Family", "Standard NCSv3 Family", 12),
]


@pytest.mark.parametrize("kind", ["vmFamily/lowPriorityCores", "lowPriorityCores"])
def test_both_priorities_of_a_family_may_have_one_name(kind):
    name = "standardNCASv3_T4Family"
    usages = [
        short(kind, name, "", -1),
        short(kind, "standardDSv2Family", "", 5),
        *NEW_SUBSCRIPTION,
    ]
    dedicated = environment(family=name)
    low = environment("low_priority", family=name)
    found = [
        quotas_of(each.clusters["gpu"], each, read_quotas(FakeClient(each, usages=usages)))
        for each in (dedicated, low)
    ]
    assert found == [
        [Quota(name=DEDICATED, used=0, limit=24), Quota(name=FAMILY_QUOTA, used=0, limit=0)],
        [Quota(name=LOW, used=0, limit=100)],
    ]


def test_a_family_of_which_a_new_subscription_has_nothing_is_refused(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    where = environment(cpus_per_node=4)
    with pytest.raises(Refused) as refused:
        check_job(spec(1), where, FakeClient(where, usages=NEW_SUBSCRIPTION))
    assert refused.value.message == (
        "`j` needs 4 vCPUs (1 node of Standard_NC64as_T4_v3, dedicated), and the limit of "
        f"`{FAMILY_QUOTA}` is 0: 4 short"
    )


def test_a_family_that_no_row_tells_of_is_said(capsys):
    where = environment(cpus_per_node=4)
    check_job(spec(1), where, FakeClient(where, usages=NEW_SUBSCRIPTION[:2]))
    assert capsys.readouterr().err == (
        f"Azure reports no quota of `{FAMILY}`: if it is 0, the job waits forever; see "
        "https://ml.azure.com/quota\n"
    )


def test_an_odd_row_does_not_hide_the_others():
    where = environment()
    odd = [None, {}, {"name": None}, {"name": {"value": "x"}, "limit": "many"}]
    client = FakeClient(where, usages=[*odd, {"name": {"value": "x"}, "limit": 1}, *USAGES])
    assert quotas_of(where.clusters["gpu"], where, read_quotas(client)) == quotas(where)


def test_low_priority_nodes_count_in_the_region_alone():
    assert quotas(environment("low_priority")) == [Quota(name=LOW, used=18, limit=50)]


def test_a_job_that_no_limit_will_ever_hold_is_refused_with_what_fits(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    where = environment()
    with pytest.raises(Refused) as refused:
        check_job(spec(3), where, FakeClient(where))
    assert refused.value.message == (
        "`j` needs 192 vCPUs (3 nodes of Standard_NC64as_T4_v3, dedicated), and the limit of "
        f"`{FAMILY_QUOTA} of this workspace` is 128: 64 short"
    )
    assert refused.value.hint == "--nodes 2 fits; ask for more at https://ml.azure.com/quota"


def test_another_cluster_that_could_hold_the_job_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    where = environment()
    small = msgspec.structs.replace(
        where.clusters["gpu"],
        compute="t4-1",
        priority="low_priority",
        cpus_per_node=4,
        price_per_node_hour=3.0,
        currency="USD",
    )
    where = msgspec.structs.replace(where, clusters=where.clusters | {"t4": small})
    job = msgspec.structs.replace(spec(3), processes_per_node=4)
    with pytest.raises(Refused) as refused:
        check_job(job, where, FakeClient(where))
    assert "; --cluster t4 fits (9.00 USD/h); " in str(refused.value.hint)


def test_gpus_are_not_offered_to_a_job_for_cpus(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    where = environment()
    usages = [usage("vmFamily", "Standard DDSv4 Family Cluster Dedicated vCPUs", 0, 4)]
    job = msgspec.structs.replace(spec(2, "cpu"), processes_per_node=1)
    with pytest.raises(Refused) as refused:
        check_job(job, where, FakeClient(where, usages=usages))
    assert "--cluster" not in str(refused.value.hint)


def test_a_job_that_has_to_wait_for_others_is_only_warned_of(capsys):
    where = environment()
    check_job(spec(2), where, FakeClient(where))
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "warning: it may wait in the queue: 128 vCPUs are needed, and of "
        f"`{FAMILY_QUOTA} of this workspace` 64 are free (64 of 128 used): 64 short"
    ]


def test_a_limit_that_was_lowered_below_what_is_used_leaves_nothing_free(capsys):
    where = environment()
    usages = [usage("workspaces", FAMILY_QUOTA, 192, 128, owner=WORKSPACE), *USAGES[1:2]]
    check_job(spec(1), where, FakeClient(where, usages=usages))
    assert capsys.readouterr().err.splitlines()[-1] == (
        "warning: it may wait in the queue: 64 vCPUs are needed, and of "
        f"`{FAMILY_QUOTA} of this workspace` 0 are free (192 of 128 used): 64 short"
    )


def test_nodes_that_idle_are_the_jobs_already(capsys):
    where = environment()
    check_job(spec(2), where, FakeClient(where, idle=1))
    assert capsys.readouterr().err == ""


def test_who_may_not_look_at_the_quota_starts_jobs_all_the_same(capsys):
    where = environment()
    refusal = CloudRefusal("no role", hint=None, status=403, code="AuthorizationFailed", text="")
    check_job(spec(4), where, FakeClient(where, usages=refusal))
    assert capsys.readouterr().err == "the quota was not checked: no role\n"


@pytest.mark.parametrize(
    ("max_nodes", "text"),
    [
        (2, f"2 nodes x 64 = 128 vCPUs (dedicated): within 192 of `{FAMILY_QUOTA}`, 64 used"),
        (
            4,
            f"4 nodes x 64 = 256 vCPUs (dedicated): 64 more than the 192 of `{FAMILY_QUOTA}`; "
            "3 nodes can start; ask for more at https://ml.azure.com/quota",
        ),
    ],
)
def test_a_clusters_maximum_is_held_against_its_quota(max_nodes, text):
    gpu = environment().clusters["gpu"]
    quota = Quota(name=FAMILY_QUOTA, used=64, limit=192)
    assert cluster_text(gpu, max_nodes, [quota]) == text


def test_clusters_of_one_quota_are_added_up():
    where = environment("low_priority")
    second = msgspec.structs.replace(where.clusters["cpu"], priority="low_priority")
    where = msgspec.structs.replace(where, clusters=where.clusters | {"cpu": second})
    assert check_clusters(FakeClient(where)) == [
        QuotaCheck(
            quota=LOW,
            clusters=("cpu", "gpu"),
            needed=4 * 4 + 4 * 64,
            used=18,
            limit=50,
            short=222,
            ok=False,  # not even one node of `gpu`
        )
    ]
