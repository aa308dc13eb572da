"""A run that hangs on two nodes of Azure ML: it ends by `limits.hang`, and says where each rank stood."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jobs.contracts.spec import RankError
from jobs.runs.failure import RankReport, root_cause
from tests.busy import limit_s
from tests.fakes.azureml import FakeAzure
from tests.fakes.azureml.ranks import Ranks

HANG_S = 10.0
# Rank 1 never comes to the collective that rank 0 waits in.
IN_TORCH = """
import os, time
import torch
from torch import distributed

distributed.init_process_group("gloo")
print("met", flush=True)
if os.environ["RANK"] == "1":
    time.sleep(3600)
distributed.all_reduce(torch.ones(1))
"""
# As above, but in MPI's words, which spin while they wait.
IN_PYTHON = """
import os, time

def all_reduce():
    while True:
        pass

def read_a_file():
    time.sleep(3600)

print("met", flush=True)
all_reduce() if os.environ["RANK"] == "0" else read_a_file()
"""


@pytest.fixture
def ranks(azure: FakeAzure, tmp_path: Path) -> Ranks:
    return Ranks(azure, tmp_path)


def guilty(ranks: Ranks, run: str) -> RankError:
    records = [msgspec.convert(ranks.record(run, rank), RankReport) for rank in (0, 1)]
    found = root_cause(records, stopped_s=None)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("program", "launcher", "where"),
    [
        (IN_TORCH, "torch", "in all_reduce"),
        pytest.param(IN_PYTHON, "mpi", "in all_reduce", marks=pytest.mark.faults),
    ],
)
def test_run_that_hangs_ends_on_both_nodes_with_all_stacks(
    ranks: Ranks, program: str, launcher: str, where: str
) -> None:
    hang_s = limit_s(HANG_S)
    run, job = ranks.finish(program, launcher=launcher, image="pytorch:1", nodes=2, hang_s=hang_s)
    assert job.state == "Failed"
    for rank in (0, 1):
        log = ranks.client.log(run, f"user_logs/std_log_process_{rank}.txt")
        assert "Fatal Python error: Aborted" in log, log
    assert where in ranks.client.log(run, "user_logs/std_log_process_0.txt")
    error = guilty(ranks, run)
    assert (error.rank, error.cause, error.exit_code) == (1, "hang", 124)
    assert error.message.startswith(
        f"no output of any rank, no metrics and no checkpoint for {hang_s:g} s; "
        "it is not in the collective that the others wait in (program.py:"
    )
