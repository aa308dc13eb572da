"""Runs a PyTorch program as it is, watched from outside: what each step was fed, and faults in it.

    torch_watched.main([PROGRAM, ARGUMENT, ...])

WATCH_INDEX names a file that gets `ATTEMPT RANK STEP SAMPLE ...` for every step taken, with
WATCH_ATTEMPT. WATCH_FAULT is `RANK STEP KIND`: the loss of that rank's step becomes nan or inf;
with `gradient` it stays what it is, but its gradients are nan; with `overflow` it is so large that a
scaled one is infinite. WATCH_NO_DROPOUT takes the dropout out of the network. WATCH_EVALUATION names
a file that is there once an evaluation has begun.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.pytorch.guard import Guard
from trainer.pytorch.keeper import Keeper

FACTORS = {"nan": float("nan"), "inf": float("inf"), "overflow": 1e36}


def main(argv: Sequence[str]) -> int:
    name, *arguments = argv
    program: Any = importlib.import_module(name)
    rank = int(os.environ["RANK"])
    watcher = Watcher(rank)
    program.Features.batches = watcher.fed(program.Features.batches)
    Guard.step = watcher.stepped(Guard.step)
    Keeper.restore = watcher.resumed(Keeper.restore)
    program.functional = Functional(watcher)
    if os.environ.get("WATCH_NO_DROPOUT"):
        torch.nn.Dropout.forward = lambda _module, inputs: inputs
    if told := os.environ.get("WATCH_EVALUATION"):
        program.Digits.evaluate = telling(program.Digits.evaluate, Path(told))
    return program.main(arguments)


def telling(evaluate: Callable[..., Any], file: Path) -> Callable[..., Any]:
    def wrapped(*arguments: Any) -> Any:
        file.touch()
        return evaluate(*arguments)

    return wrapped


class Watcher:
    """What this rank has done; the program's functions are wrapped by its methods."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.step = 0
        self.rows: Sequence[int] = ()
        self.attempt = os.environ.get("WATCH_ATTEMPT", "0")
        index = os.environ.get("WATCH_INDEX")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.fd = None if index is None else os.open(index, flags, 0o644)
        rank_text, step, kind = (os.environ.get("WATCH_FAULT") or "-1 0 nan").split()
        self.fault = (int(rank_text), int(step), kind)

    def fed(self, batches: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(pictures: Any, rows: Iterable[Sequence[int]], *more: Any) -> Iterator[Any]:
            asked, given = tee(rows)
            for self.rows, batch in zip(given, batches(pictures, asked, *more), strict=True):
                yield batch

        return wrapped

    def stepped(self, step: Callable[..., None]) -> Callable[..., None]:
        def wrapped(guard: Guard, position: Any, *arguments: Any, **named: Any) -> None:
            self.step = position.step
            if self.fd is not None:
                samples = " ".join(map(str, self.rows))
                line = f"{self.attempt} {self.rank} {position.step} {samples}\n"
                os.write(self.fd, line.encode())
            step(guard, position, *arguments, **named)

        return wrapped

    def resumed(self, restore: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(keeper: Keeper, *arguments: Any) -> Any:
            position = restore(keeper, *arguments)
            self.step = position.step
            return position

        return wrapped


class Functional:
    """torch.nn.functional, whose cross entropy fails where it is told to."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.nn.functional, name)

    def cross_entropy(self, *arguments: Any, **named: Any) -> Tensor:
        loss = torch.nn.functional.cross_entropy(*arguments, **named)
        rank, step, kind = self._watcher.fault
        if torch.is_grad_enabled() and (self._watcher.rank, self._watcher.step + 1) == (rank, step):
            if kind == "gradient":  # the root's slope at 0 is infinite
                return loss + (arguments[0] * 0).sqrt().sum()
            return loss * FACTORS[kind]
        return loss
