"""Job file + environment -> JobSpec: all that is decided on the way."""

from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import LaunchError, Refused
from jobs.contracts.spec import (
    DatasetVersion,
    InputSpec,
    JobFile,
    JobInput,
    JobLimits,
    JobOutput,
    JobRetry,
    JobSpec,
    Limits,
)
from jobs.jobfile.read import CodeLocation
from jobs.jobfile.resolve import resolve
from tests.fakes.gangs import make_cluster, make_environment

DIGITS = DatasetVersion(name="digits", version=3, digest="sha256:abc", files=4, bytes=1000)
CODE = CodeLocation(folder="/home/me/project", only=("trainer",))


def environment(**clusters):
    made = make_environment(Path("/w"), nodes=2, processes=4)
    clusters = clusters or {"cpu": made.clusters["cpu"]}
    return msgspec.structs.replace(made, clusters=clusters)


def cluster(**changes):
    return msgspec.structs.replace(make_cluster(nodes=2, processes=4), **changes)


def decide(job, where=None, code=None):
    return resolve(
        job,
        environment=where or environment(),
        datasets={"digits": DIGITS},
        code=code,
        image_reference=str,
    )


def job(**changes):
    return JobFile(**{"name": "j", "image": "pytorch", "command": ("true",), **changes})


def test_a_whole_job_is_resolved():
    given = JobFile(
        name="digits",
        image="pytorch",
        launcher="horovod",
        module="trainer.pytorch.mnist",
        args={"epochs": 3, "fast": True},
        nodes="max",
        inputs={"data": JobInput(dataset="digits", mode="mount")},
        outputs={"model": JobOutput()},
        setup=("echo hi",),
        env={"A": "b"},
        secrets={"KEY": "key"},
        limits=JobLimits(wall_clock="1.5h", hang="10m"),
        retry=JobRetry(max=1),
        shm_size="8g",
        priority="high",
        identity="user",
        experiment="e",
        tags={"t": "u"},
    )
    assert decide(given, code=CODE) == JobSpec(
        name="digits",
        stack="local",
        image="pytorch",
        launcher="horovod",
        command=("python", "-m", "trainer.pytorch.mnist", "--epochs", "3", "--fast"),
        code="/home/me/project",
        code_only=("trainer",),
        cluster="cpu",
        compute="cpu-test",
        nodes=2,
        processes_per_node=4,
        parameter_servers=0,
        inputs={"data": InputSpec(dataset=DIGITS, mode="mount")},
        outputs=("model",),
        setup=("echo hi",),
        env={"A": "b"},
        secrets={"KEY": "key"},
        limits=Limits(wall_clock_s=5400.0, hang_s=600.0),
        retry=JobRetry(max=1),
        shm_size="8g",
        priority="high",
        identity="user",
        experiment="e",
        tags={"t": "u"},
    )


@pytest.mark.parametrize(
    ("secrets", "hint"),
    [
        ({"cpu": ("other",), "gpu": ("KEY",)}, "--cluster gpu"),
        (
            {"cpu": (), "gpu": ()},
            "add `key` to `trainyard:secrets` or `clusters.cpu.secrets`, then `pulumi up`",
        ),
    ],
)
def test_a_secret_that_the_clusters_identity_may_not_read_is_refused(secrets, hint):
    where = environment(**{name: cluster(secrets=each) for name, each in secrets.items()})
    given = job(cluster="cpu", secrets={"A": "key", "B": "key"})
    with pytest.raises(LaunchError) as refused:
        decide(given, where=where)
    assert refused.value.message == "cluster `cpu` may not read the secret `key`"
    assert refused.value.hint == hint
    # A sender's own rights are the vault's to know.
    assert decide(job(cluster="cpu", secrets={"A": "key"}, identity="user"), where=where)


def test_a_stack_that_does_not_say_which_secrets_are_read_refuses_none():
    assert decide(job(secrets={"A": "key"})).secrets == {"A": "key"}


@pytest.mark.parametrize(
    ("changes", "code", "command"),
    [
        ({"module": "a.b", "command": None}, None, ("python", "-m", "a.b")),
        (
            {"script": "src/go.py", "command": None},
            CodeLocation(folder="/src", script="go.py"),
            ("python", "go.py"),
        ),
        ({"command": ("bash", "x.sh"), "args": {"n": 1}}, None, ("bash", "x.sh", "--n", "1")),
    ],
)
def test_a_program_becomes_an_argv(changes, code, command):
    assert decide(job(**changes), code=code).command == command


@pytest.mark.parametrize(
    ("changes", "clusters", "placed"),
    [
        ({}, {"a": cluster(), "b": cluster()}, ("a", 1, 4)),
        ({"nodes": 3}, {"a": cluster(), "b": cluster(max_nodes=4)}, ("b", 3, 4)),
        ({"nodes": "max"}, {"a": cluster()}, ("a", 2, 4)),
        ({"processes_per_node": 2}, {"a": cluster()}, ("a", 1, 2)),
        ({"processes_per_node": 6}, {"a": cluster(), "b": cluster(gpus_per_node=8)}, ("b", 1, 6)),
        ({}, {"a": cluster(gpus_per_node=8)}, ("a", 1, 8)),
        ({"cluster": "b"}, {"a": cluster(), "b": cluster()}, ("b", 1, 4)),
    ],
)
def test_a_job_is_placed(changes, clusters, placed):
    spec = decide(job(**changes), environment(**clusters))
    assert (spec.cluster, spec.nodes, spec.processes_per_node) == placed


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        (
            {"nodes": 5},
            "`j` asks for 5 nodes x 4 processes, and cluster `cpu` of stack `local` takes at most "
            "2 nodes x 4 processes",
            "this fits: --nodes 2",
        ),
        (
            {"nodes": 1, "processes_per_node": 9},
            "`j` asks for 1 node x 9 processes, and cluster `cpu` of stack `local` takes at most "
            "2 nodes x 4 processes",
            "this fits: --processes-per-node 4; the maximum is the cluster's `processes_per_node` in "
            "Pulumi.local.yaml",
        ),
        (
            {"nodes": 3, "processes_per_node": 9},
            "`j` asks for 3 nodes x 9 processes, and cluster `cpu` of stack `local` takes at most "
            "2 nodes x 4 processes",
            "this fits: --nodes 2 --processes-per-node 4; the maximum is the cluster's "
            "`processes_per_node` in Pulumi.local.yaml",
        ),
    ],
)
def test_a_job_too_large_is_refused_with_what_fits(changes, message, hint):
    with pytest.raises(Refused) as caught:
        decide(job(**changes))
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_one_rank_a_gpu_is_a_maximum_that_no_setting_moves():
    clusters = {"gpu": cluster(gpus_per_node=2, processes_per_node=8)}
    with pytest.raises(Refused) as caught:
        decide(job(nodes=1, processes_per_node=4), environment(**clusters))
    assert caught.value.hint == (
        "this fits: --processes-per-node 2 (one process a GPU, and a node has 2)"
    )


def test_the_largest_cluster_is_named_when_none_fits():
    clusters = {"small": cluster(max_nodes=1), "large": cluster(max_nodes=8)}
    with pytest.raises(Refused, match="cluster `large` of stack `local` takes at most 8 nodes"):
        decide(job(nodes=9), environment(**clusters))


def test_the_largest_cluster_is_the_one_with_most_ranks():
    clusters = {"cores": cluster(max_nodes=4), "gpus": cluster(max_nodes=3, gpus_per_node=8)}
    with pytest.raises(Refused, match="cluster `gpus` of stack `local` takes at most 3 nodes"):
        decide(job(nodes=9), environment(**clusters))


def test_an_unknown_cluster_names_the_nearest():
    with pytest.raises(LaunchError) as caught:
        decide(job(cluster="gpus"), environment(gpu=cluster(), cpu=cluster()))
    assert caught.value.message == "stack `local` has no cluster `gpus`"
    assert caught.value.hint == "did you mean `gpu`?"


@pytest.mark.parametrize(
    ("limits", "price", "wall_clock_s", "cost"),
    [
        (JobLimits(cost=10), 2.5, 7200.0, 10.0),  # 2 nodes x 2.5 an hour: 2 hours
        (JobLimits(cost=10, wall_clock="1h"), 2.5, 3600.0, None),
        (JobLimits(cost=10, wall_clock="3h"), 2.5, 7200.0, 10.0),
        (JobLimits(cost=10), 0.0, None, None),
        (JobLimits(), None, None, None),
    ],
)
def test_a_limit_on_cost_becomes_one_on_time(limits, price, wall_clock_s, cost):
    where = environment(cpu=cluster(price_per_node_hour=price))
    spec = decide(job(limits=limits, nodes=2), where)
    assert spec.limits == Limits(wall_clock_s=wall_clock_s, hang_s=1800.0, cost=cost)


def test_a_hang_that_is_off_is_no_limit():
    assert decide(job(limits=JobLimits(hang="off"))).limits == Limits(
        wall_clock_s=None, hang_s=None
    )


def test_a_limit_on_cost_without_a_price_is_refused():
    where = environment(cpu=cluster(price_per_node_hour=None, size="NC6"))
    with pytest.raises(LaunchError) as caught:
        decide(job(limits=JobLimits(cost=10)), where)
    assert caught.value.hint == (
        "give `limits.wall_clock` instead, or the cluster's `price_per_node_hour` in a file of "
        "`launch env export`"
    )
