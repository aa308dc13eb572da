"""Meets the other ranks by DDP as one that computes on a kind of device, which need not be there: KIND [URL]."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import torch
from torch.distributed import TCPStore

from trainer.common.errors import TrainingError
from trainer.common.world import RankArguments, World
from trainer.pytorch.strategy import Ddp


def main(argv: Sequence[str]) -> int:
    """Meet, and print what is said; 1 where the ranks do not fit together."""
    kind, *url = argv
    world = World.from_environment(arguments=RankArguments(dist_url=url[0]) if url else None)
    served = None
    if world.is_main and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # In place of torchrun, or of our gang.
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        served = TCPStore(host, port, is_master=True, wait_for_workers=False)
    try:
        Ddp().init(world, torch.device(kind, 0) if kind == "cuda" else torch.device(kind))
    except TrainingError as error:
        print(error, flush=True)
        return 1
    del served
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
