"""Whatever starts rank/main.py, the job's command sees the same contract."""

from __future__ import annotations

import json

import pytest

from jobs.rank.azure_main import rank_variables
from jobs.rank.world import RankJob, World, map_world, rank_environment

# What each starter sets for rank 5 of 8 on the second of two nodes.
STARTERS = {
    "our gang": {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "NODE_RANK": "1",
        "MASTER_ADDR": "10.0.0.4",
        "MASTER_PORT": "6105",
    },
    "torchrun": {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "ROLE_RANK": "5",
        "MASTER_ADDR": "10.0.0.4",
        "MASTER_PORT": "6105",
    },
    "Open MPI": {
        "OMPI_COMM_WORLD_RANK": "5",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
        "MASTER_ADDR": "10.0.0.4",
    },
    "Intel MPI": {
        "PMI_RANK": "5",
        "PMI_SIZE": "8",
        "MPI_LOCALRANKID": "1",
        "MPI_LOCALNRANKS": "4",
        "MASTER_ADDR": "10.0.0.4",
    },
    "bare PMI on Azure ML": {
        "PMI_RANK": "5",
        "PMI_SIZE": "8",
        "AZUREML_NODE_COUNT": "2",
        "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000",
    },
    "Azure ML, PyTorch": {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "NODE_RANK": "1",
        "AZUREML_NODE_COUNT": "2",
        "MASTER_ADDR": "10.0.0.4",
        "MASTER_PORT": "6105",
    },
    "Azure ML, MPI": {
        "OMPI_COMM_WORLD_RANK": "5",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
        "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000",
        "AZUREML_NODE_COUNT": "2",
    },
    "Batch AI": {
        "OMPI_COMM_WORLD_RANK": "5",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
        "AZ_BATCHAI_MPI_MASTER_NODE": "10.0.0.4",
    },
}


@pytest.mark.parametrize("starter", STARTERS)
def test_every_starter_gives_the_same_world(starter: str) -> None:
    assert map_world(STARTERS[starter]) == World(5, 8, 1, 4, 1, "10.0.0.4", "6105")


def test_started_by_nobody_is_a_world_of_one() -> None:
    assert map_world({"PATH": "/bin"}) == World(0, 1, 0, 1, 0, "127.0.0.1", "6105")


def test_our_variables_win_over_those_of_an_mpi_above_us() -> None:
    environ = {**STARTERS["our gang"], "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    assert map_world(environ).rank == 5


TASKS = {
    "chief": ["10.0.0.4:2222"],
    "worker": ["10.0.0.5:2222", "10.0.0.5:2223"],
    "ps": ["10.0.0.4:2223", "10.0.0.6:2222"],
}


@pytest.mark.parametrize(
    ("task", "world"),
    [
        (("chief", 0), (0, 3, 0, 1, 0)),
        (("worker", 0), (1, 3, 0, 2, 1)),
        (("worker", 1), (2, 3, 1, 2, 1)),
        (("ps", 0), (3, 3, 1, 1, 0)),
        (("ps", 1), (4, 3, 0, 1, 2)),
    ],
)
def test_tensorflows_tasks_are_numbered_as_our_launchers_number_them(
    task: tuple[str, int], world: tuple[int, int, int, int, int]
) -> None:
    kind, index = task
    config = {"cluster": TASKS, "task": {"type": kind, "index": index}}
    environ = {"TF_CONFIG": json.dumps(config), "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"}
    assert map_world(environ) == World(*world, "10.0.0.4", "6105")


def test_our_variables_win_over_tensorflows() -> None:
    config = {"cluster": TASKS, "task": {"type": "ps", "index": 0}}
    assert map_world({**STARTERS["our gang"], "TF_CONFIG": json.dumps(config)}).rank == 5


@pytest.mark.parametrize(
    ("task", "becomes"),
    [
        ({"type": "worker", "index": 0}, {"type": "chief", "index": 0}),
        ({"type": "worker", "index": 2}, {"type": "worker", "index": 1}),
        ({"type": "ps", "index": 0}, {"type": "ps", "index": 0}),
    ],
)
def test_the_first_of_azure_mls_workers_is_the_chief_of_a_job_that_wants_one(
    task: dict[str, object], becomes: dict[str, object]
) -> None:
    config = {"cluster": {"worker": ["a:1", "b:1", "c:1"], "ps": ["d:1"]}, "task": task}
    environ = {"TF_CONFIG": json.dumps(config), "TRAINYARD_JOB": "e30=", "TRAINYARD_RUN": "a"}
    seen = rank_variables(environ, is_chief_led=True)
    assert json.loads(seen.pop("TF_CONFIG")) == {
        "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]},
        "task": becomes,
    }
    assert seen == ({"CUDA_VISIBLE_DEVICES": "-1"} if task["type"] == "ps" else {})


def test_local_nodes_are_dealt_whatever_mpirun_sees_of_the_one_machine() -> None:
    environ = {
        "OMPI_COMM_WORLD_RANK": "5",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "5",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
    }
    assert map_world(environ, 4) == World(5, 8, 1, 4, 1, "127.0.0.1", "6105")


def test_command_sees_the_contract_and_what_the_job_sets_itself() -> None:
    job = RankJob(
        run_dir="/runs/a",
        command=["true"],
        inputs={"digits": "/inputs/d"},
        streams=["digits"],
        outputs=["model"],
        cpus=[[0], [1, 2, 3]],
        gpus=["0", "1"],
        interpreter="/venv/bin/python",
    )
    world = World(1, 2, 0, 1, 1, "127.0.0.1", "6105")
    assert rank_environment({"PATH": "/bin", "MINE": "1"}, world, job) == {
        "PATH": "/venv/bin:/bin",
        "MINE": "1",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "6105",
        "TRAINYARD_RUN_DIR": "/runs/a",
        "TRAINYARD_CHECKPOINT_DIR": "/runs/a/checkpoints",
        "TRAINYARD_INPUT_DIGITS": "/inputs/d",
        "TRAINYARD_STREAMED_DIGITS": "/runs/a/inputs/digits.stream.json",
        "TRAINYARD_OUTPUT_MODEL": "/runs/a/outputs/model",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "OMP_NUM_THREADS": "3",
        "CUDA_VISIBLE_DEVICES": "1",
        "TRAINYARD_NODE_GPUS": "1",
    }
    elastic = {"TORCHELASTIC_RESTART_COUNT": "0"}
    seen = rank_environment(elastic, World(5, 8, 1, 4, 1, "a", "1"), RankJob("/runs/a", ["true"]))
    assert {k: v for k, v in seen.items() if k.startswith(("GROUP", "ROLE", "TORCH"))} == {
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "5",
        "ROLE_WORLD_SIZE": "8",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_RUN_ID": "a",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/runs/a/nodes/flight-",
        "TORCH_FR_DUMP_TEMP_FILE": "/runs/a/outputs/nccl-flight-record-rank-",
        "TORCH_FR_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_BUFFER_SIZE": "2000",
    }
    crowded = World(0, 99_999, 0, 99_999, 0, "a", "1")
    assert rank_environment({}, crowded, RankJob("/runs/a", ["true"]))["OMP_NUM_THREADS"] == "1"
    chosen = {"OMP_NUM_THREADS": "7", "CUDA_VISIBLE_DEVICES": "3"}
    seen = rank_environment(chosen, world, job)
    assert {name: seen[name] for name in chosen} == chosen
    assert "TRAINYARD_NODE_GPUS" not in seen
