"""Prints what PyTorch programs make of GPUs that are made up, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from unittest import mock

import torch
from torch import nn

from trainer.common.errors import TrainingError
from trainer.pytorch.find_batch import holds, memory_told
from trainer.pytorch.precision import require_units
from trainer.pytorch.step_parts import StepParts

GPU = torch.device("cuda")
ERRORS: dict[str, RuntimeError] = {
    "torch": torch.OutOfMemoryError("CUDA out of memory."),
    "cuDNN": RuntimeError("FIND was unable to find an engine to execute this computation"),
    "cuBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
    "CUDA": RuntimeError("CUDA error: out of memory"),
    "other": RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
}


def lacks() -> object:
    """What a search and a training make of each error: whether memory holds a step, what is said."""
    found: dict[str, object] = {}
    for name, error in ERRORS.items():
        told: list[object] = []
        try:
            told.append(holds(mock.Mock(side_effect=error), 1))
        except RuntimeError as raised:
            told.append(str(raised))
        try:
            with memory_told("a step", hint="a smaller one"):
                raise error
        except (TrainingError, RuntimeError) as raised:
            told.append(str(raised))
        found[name] = told
    return found


def units() -> object:
    """What is said of each precision on a GPU with and without units for bf16, and on a CPU."""
    found: dict[str, str] = {}
    for has_units in (True, False):
        with (
            mock.patch.object(torch.cuda, "is_bf16_supported", return_value=has_units) as asked,
            mock.patch.object(torch.cuda, "get_device_name", return_value="Tesla T4"),
        ):
            for device in (GPU, torch.device("cpu")):
                for precision in ("fp32", "bf16", "fp16"):
                    try:
                        require_units(precision, device)
                    except TrainingError as error:
                        found[f"{device.type}, {precision}, {has_units}"] = str(error)
        # As torch also says of what it emulates, unless asked otherwise.
        asked.assert_called_once_with(including_emulation=False)
    return found


class Event:
    """An event of a stream whose clock the test turns: each takes a second more."""

    now = 0.0
    ended = 0.0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        """Come to the stream's end."""
        Event.now += 1
        self.at = Event.now

    def query(self) -> bool:
        """Tell whether the GPU has come here."""
        return self.at <= Event.ended

    def elapsed_time(self, later: Event) -> float:
        """Give milliseconds."""
        return (later.at - self.at) * 1e3


def events() -> object:
    """The means of 40 steps of which the GPU has done 35, and of the rest; how many wait under Horovod."""
    network = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    with mock.patch.object(torch.cuda, "Event", Event):
        alone = StepParts(network, optimizer, GPU, num_ranks=1)
        for number in range(40):
            with alone.step():
                Event.now += number  # as long as the step's kernels
        Event.ended = sum(number + 2.0 for number in range(35))
        first = alone.take()
        Event.ended = Event.now
        last = alone.take()
        shared = StepParts(network, optimizer, GPU, num_ranks=2)
        with shared.step():
            pass
    return {"first": first, "last": last, "shared": shared.take(), "waiting": len(shared._events)}


def main(_argv: Sequence[str] = ()) -> None:
    """Print what each found."""
    print(json.dumps({each.__name__: each() for each in (lacks, units, events)}))
