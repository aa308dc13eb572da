"""Checks the bandwidth as a rank among which rank 1 gets wrong sums, over a backend that is said to be BACKEND.

To leave the group takes until the end of the test where BACKEND is nccl.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
from torch import distributed

from trainer.pytorch import nccl_check


def main(argv: Sequence[str]) -> int:
    """Check; gives the exit code."""
    sound = distributed.all_reduce

    def corrupt(tensor: torch.Tensor, **given: Any) -> None:
        sound(tensor, **given)
        if tensor.dtype == torch.float32 and tensor[-1] > 0:  # ones, and no figure or flag
            tensor[-1] += 1

    with contextlib.ExitStack() as stack:
        if os.environ["RANK"] == "1":
            stack.enter_context(mock.patch.object(distributed, "all_reduce", corrupt))
        if os.environ["BACKEND"] == "nccl":
            stack.enter_context(mock.patch.object(distributed, "get_backend", return_value="nccl"))
            waiting = mock.patch.object(
                distributed, "destroy_process_group", threading.Event().wait
            )
            stack.enter_context(waiting)
        return nccl_check.main(argv)
