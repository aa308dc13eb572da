"""Starts a program as one of several ranks, of which two may share a GPU over NCCL.

    python -m tests.gpu.ranks [--share] [--fail-at STEP] trainer.pytorch.resnet50 --data random ...

Under mpirun the rank is the one that mpirun says. NCCL takes one rank a GPU of a machine: with `--share`
each rank tells it another machine's name (NCCL_HOSTID), so that what they exchange goes over loopback, and the
program's own refusal is left out. With `--fail-at` the last rank fails by itself at that step, and says when.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from typing import Any

FAILED = "fails by itself at "
# Of Open MPI, and what our launcher makes of it.
NAMES = {
    "OMPI_COMM_WORLD_RANK": "RANK",
    "OMPI_COMM_WORLD_SIZE": "WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK": "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "LOCAL_WORLD_SIZE",
}


def main() -> int:
    """Run the program; gives its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--fail-at", type=int)
    parser.add_argument("program")
    options, arguments = parser.parse_known_args()
    os.environ.update({NAMES[name]: os.environ[name] for name in NAMES if name in os.environ})
    if options.share:
        share_gpu()
    if options.fail_at and os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1):
        fail_at(options.fail_at)
    code: int = importlib.import_module(options.program).main(arguments)
    return code


def share_gpu() -> None:
    """Let the ranks of this machine take its first GPU, each as if it were alone on a machine."""
    rank = os.environ["RANK"]
    os.environ |= {"CUDA_VISIBLE_DEVICES": "0", "NCCL_HOSTID": rank, "NCCL_SOCKET_IFNAME": "lo"}
    from trainer.pytorch import meeting, strategy

    require_devices = meeting.require_devices
    meeting.require_devices = lambda devices, **_: require_devices(devices, backend="gloo")
    strategy.require_own_gpus = lambda _: None


def fail_at(step: int) -> None:
    """Let this rank's loop raise in front of that step."""
    from trainer.pytorch.loop import Training

    take_step = Training[Any, Any]._take_step
    taken: list[None] = []

    def take(training: Training[Any, Any], *given: Any) -> Any:
        taken.append(None)
        if len(taken) == step:
            message = f"{FAILED}{time.time()}"
            raise ValueError(message)
        return take_step(training, *given)

    Training._take_step = take


if __name__ == "__main__":
    sys.exit(main())
