"""A plan says what would start and is hardly meant."""

import msgspec
import pytest

from jobs.contracts.spec import JobFile
from jobs.launching.notes import job_notes
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_cluster, make_spec

APART = (
    "nothing connects the 4 processes: each trains a model of its own; "
    "`launcher: torch`, `horovod`, `tensorflow` or `mpi` joins them"
)


JOB = JobFile(name="x", image="pytorch", command=("python",))


def spec(**changes):
    return make_spec(["python"], **changes)


def stack(gpus=0, price=None, network=None, cores=4):
    nodes = msgspec.structs.replace(
        make_cluster(), gpus_per_node=gpus, price_per_node_hour=price, cpus_per_node=cores
    )
    return make_cloud_environment(clusters={"cpu": nodes}, network=network)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"launcher": "none", "nodes": 2, "processes_per_node": 2}, (APART,)),
        ({"launcher": "none", "nodes": 1, "processes_per_node": 1}, ()),
        ({"launcher": "torch", "nodes": 2, "processes_per_node": 2}, ()),
    ],
)
def test_processes_that_nothing_connects_are_told(changes, expected):
    assert job_notes(JOB, spec(**changes), stack()) == expected


@pytest.mark.parametrize(
    ("gpus", "price", "expected"),
    [
        (
            4,
            7.5,
            (
                "3 GPUs of 4 on each node have no process, and are paid for; "
                "`processes_per_node: gpu` uses all",
            ),
        ),
        (2, 0, ("1 GPU of 2 on each node has no process; `processes_per_node: gpu` uses all",)),
        (1, 7.5, ()),
    ],
)
def test_gpus_without_a_process_are_told(gpus, price, expected):
    told = job_notes(JOB, spec(launcher="torch", nodes=1, processes_per_node=1), stack(gpus, price))
    assert told == expected


@pytest.mark.parametrize(
    ("processes", "cores", "expected"),
    [
        (2, 1, "the 2 processes on each node share 1 core"),
        (5, 4, "the 5 processes on each node share 4 cores"),
        (4, 4, None),
    ],
)
def test_processes_that_share_a_core_are_told(processes, cores, expected):
    told = job_notes(JOB, spec(launcher="torch", processes_per_node=processes), stack(cores=cores))
    more = "a smaller `processes_per_node` is likely to train faster"
    assert told == ((f"{expected}: {more}",) if expected else ())


@pytest.mark.parametrize("network", ["private", "public", None])
def test_what_a_job_fetches_on_nodes_without_the_internet_is_told(network):
    fetching = spec(
        launcher="torch",
        requirements="requirements.txt",
        setup=("pip install wheel==1", "make", "git clone https://example.com/a", "curl -O a"),
    )
    told = (
        "nodes of this stack cannot reach the internet, and this is fetched: "
        "`requirements: requirements.txt`, `pip install wheel==1`, "
        "`git clone https://example.com/a`, `curl -O a`; "
        "use an index inside its network, or put packages into the image",
    )
    assert job_notes(JOB, fetching, stack(network=network)) == (
        told if network == "private" else ()
    )
    assert job_notes(JOB, spec(launcher="torch", setup=("make",)), stack(network=network)) == ()


@pytest.mark.parametrize("engine", ["local", "azureml", "azureml_v1"])
def test_every_engines_plan_says_so(launching, engine):
    if engine != "local":
        launching.write_environment(make_cloud_environment(engine=engine))
    job = launching.write_job("name: x\nimage: pytorch\ncommand: [python, -c, '1']\nnodes: 1\n")
    planned = launching.type("plan", job, "--set", "processes_per_node=1", "--json").json()
    assert [note for note in planned["notes"] if "connects" in note] == []
    words = ("plan", job, "--set", "processes_per_node=2", "--cluster", "cpu", "--json")
    planned = launching.type(*words).json()
    told = APART.replace(" 4 ", " 2 ")
    assert [note for note in planned["notes"] if "connects" in note] == [told]


@pytest.mark.parametrize(
    ("job", "chosen", "is_told"),
    [
        ({}, "cpu", True),
        ({"cluster": "cpu"}, "cpu", False),
        ({"processes_per_node": 1}, "cpu", False),
        ({}, "gpu", False),
    ],
    ids=["first", "named", "no GPU asked for", "GPUs"],
)
def test_gpus_of_another_cluster_than_the_first_are_told(job, chosen, is_told):
    nodes = make_cluster()
    clusters = {
        "cpu": nodes,
        "gpu": msgspec.structs.replace(nodes, gpus_per_node=1),
        "gpu-low": msgspec.structs.replace(nodes, gpus_per_node=4),
    }
    told = job_notes(
        msgspec.structs.replace(JOB, **job),
        spec(launcher="torch", nodes=1, processes_per_node=1, cluster=chosen),
        make_cloud_environment(clusters=clusters),
    )
    note = (
        "cluster `cpu`, the first that is large enough, has no GPUs; "
        "`--cluster gpu` has 1 on each node"
    )
    assert told == ((note,) if is_told else ())
