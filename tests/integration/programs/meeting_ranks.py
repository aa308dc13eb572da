"""Meets the other ranks by DDP as one that computes on a kind of device, which need not be there.

KIND [URL [RANK SIZE GPU BACKEND]]: the last four are for a rank that was started one by one, and say
which GPU it has. It meets START_TIMES times, and waits MEETING_S for the others; BACKEND_SAYS is what
its backend fails by.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from unittest import mock

import torch
from torch import distributed
from torch.distributed import TCPStore

from trainer.common.errors import TrainingError
from trainer.common.world import RankArguments, World
from trainer.pytorch import meeting
from trainer.pytorch.strategy import Ddp


def main(argv: Sequence[str]) -> int:
    """Meet, and print what is said; 1 where the ranks do not fit together."""
    kind, *given = argv
    arguments = RankArguments(dist_url=given[0]) if given else None
    gpu = "a"
    if len(given) > 1:
        url, rank, size, gpu, backend = given
        arguments = RankArguments(
            dist_url=url, rank=int(rank), world_size=int(size), dist_backend=backend
        )
    world = World.from_environment(arguments=arguments)
    served = None
    if world.is_main and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # In place of torchrun, or of our gang.
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        served = TCPStore(host, port, is_master=True, wait_for_workers=False)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(meeting, "name_of_gpu", return_value=gpu))
            if "MEETING_S" in os.environ:
                short = timedelta(seconds=float(os.environ["MEETING_S"]))
                stack.enter_context(mock.patch.object(meeting, "MEETING_TIMEOUT", short))
            if "BACKEND_SAYS" in os.environ:
                error = distributed.DistBackendError(os.environ["BACKEND_SAYS"])
                failing = mock.patch.object(distributed, "init_process_group", side_effect=error)
                stack.enter_context(failing)
            for number in range(int(os.environ.get("START_TIMES", "1"))):
                if number and served:  # torchrun ends its ranks; who was killed leaves its file
                    distributed.destroy_process_group()
                Ddp().init(world, torch.device(kind, 0) if kind == "cuda" else torch.device(kind))
    except TrainingError as error:
        print(error, flush=True)
        return 1
    del served
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
