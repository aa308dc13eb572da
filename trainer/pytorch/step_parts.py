"""Times a step's compute, and the part of the gradients' exchange that nothing hides."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

# DDP times each of its first ten steps, then one of so many.
EVERY = 10


class StepParts:
    """Means of a step since they were taken last, in seconds: `compute_s` and `exchange_s`.

    The exchange is the time from the last gradient to the last average of all ranks. DDP times it by
    itself (https://pytorch.org/docs/stable/ddp_comm_hooks.html has what lies between), on a GPU by
    events, for which the host waits one step in ten. Under Horovod it is the wait for the averages, on
    CPUs only: on a GPU that wait also has what is still being computed, and nothing is told.
    """

    def __init__(
        self,
        wrapped: nn.Module,
        optimizer: Optimizer,
        device: torch.device,
        *,
        num_ranks: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._is_gpu = device.type == "cuda"
        self._ddp: Any = wrapped if isinstance(wrapped, DistributedDataParallel) else None
        self._steps_s: list[float] = []
        self._events: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()
        self._waited_s = 0.0
        averaging: Any = optimizer
        is_horovod = self._ddp is None and hasattr(optimizer, "synchronize")
        self._is_known = num_ranks == 1 or self._ddp is not None or not self._is_gpu
        if self._ddp is not None:
            self._ddp._set_ddp_runtime_logging_sample_rate(EVERY)  # noqa: SLF001 (has no other name)
        elif is_horovod and not self._is_gpu:
            averaging.synchronize = self._timed(averaging.synchronize)

    @contextmanager
    def step(self) -> Generator[None]:
        """Time a step: forward, backward, exchange and the optimizer's."""
        if not self._is_known:
            yield
            return
        if not self._is_gpu:
            began_s = self._clock()
            yield
            self._steps_s.append(self._clock() - began_s)
            return
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        yield
        ended.record()
        self._events.append((began, ended))
        self._count_ended()

    def take(self) -> dict[str, float]:
        """Give the means; empty before the first, and where the exchange is not known."""
        self._count_ended()
        num_steps = len(self._steps_s)
        if not num_steps:
            return {}
        step_s = sum(self._steps_s) / num_steps
        exchange_s = self._waited_s / num_steps if self._ddp is None else self._ddp_exchange_s()
        self._steps_s, self._waited_s = [], 0.0
        if exchange_s is None:
            return {}
        # DDP's is of one step, which may have lasted longer than the mean.
        exchange_s = min(exchange_s, step_s)
        return {"compute_s": step_s - exchange_s, "exchange_s": exchange_s}

    def _count_ended(self) -> None:
        """Count the steps that a GPU has ended; the guard's reading of sums lets few of them wait."""
        while self._events and self._events[0][1].query():
            began, ended = self._events.popleft()
            self._steps_s.append(began.elapsed_time(ended) / 1e3)

    def _ddp_exchange_s(self) -> float | None:
        """Read what DDP timed of its newest step that it timed; nanoseconds there."""
        told = self._ddp._get_ddp_logging_data()  # noqa: SLF001 (has no other name)
        whole, hidden = (
            told.get(name, 0)
            for name in ("backward_comm_time", "backward_compute_comm_overlap_time")
        )
        return max(whole - hidden, 0) / 1e9 if whole else None

    def _timed(self, synchronize: Callable[[], None]) -> Callable[[], None]:
        def timed() -> None:
            began_s = self._clock()
            synchronize()
            self._waited_s += self._clock() - began_s

        return timed
