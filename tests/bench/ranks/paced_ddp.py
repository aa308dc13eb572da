"""One rank of DDP over Gloo on a made slower device: prints the seconds of a step of each training.

paced_ddp.py PACES SECONDS NETWORK:BATCH...    (rank and place by torchrun's variables)
paced_ddp.py PACES                             (alone: measures the paces of all trainings of PACES)

The network computes on a core, and each layer ends no sooner than on a device of a SLOWER-th of that
core's speed. So ranks that share cores do not slow each other down, and gradients become ready one
after the other as on a device of their own. `exchange-MB` is one tensor of so many MB.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torchvision
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

SLOWER = 6.0
PICTURE = 64
WARM_UP, LEAST, PACED = 2, 8, 15


class Exchange(nn.Module):
    """So many MB of parameters, and next to no computing."""

    def __init__(self, mb: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(mb * 250_000))

    def forward(self, pictures: Tensor) -> Tensor:
        return self.weight * pictures[0, 0, 0, 0]


class Paces:
    """Holds each layer of a step back until its time; notes the times where it has none."""

    def __init__(self, network: nn.Module, ends_s: list[float]) -> None:
        self.ends_s = ends_s
        self.noted: list[float] = []
        self._began_s = 0.0
        for each in network.modules():
            if not list(each.children()) and not isinstance(each, nn.ReLU | Exchange):
                each.register_forward_hook(self._end_forward)

    def begin(self) -> None:
        self.noted = []
        self._began_s = time.perf_counter()

    def _end_forward(self, module: nn.Module, inputs: object, output: Tensor) -> None:
        del module, inputs
        self._end()
        output.register_hook(self._end)  # what follows the layer has its gradient

    def _end(self, *_: object) -> None:
        at = len(self.noted)
        if at < len(self.ends_s):
            left_s = self._began_s + self.ends_s[at] - time.perf_counter()
            if left_s > 0:
                time.sleep(left_s)
        self.noted.append(time.perf_counter() - self._began_s)


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name.startswith("exchange-"):
        return Exchange(int(name.removeprefix("exchange-")))
    return torchvision.models.get_model(name, weights=None)


def stepping(model: nn.Module, paces: Paces, batch: int) -> Callable[[], float]:
    """Make the function that does a step and returns its seconds."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    pictures = torch.randn(batch, 3, PICTURE, PICTURE)

    def step() -> float:
        paces.begin()
        started_s = time.perf_counter()
        model(pictures).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - started_s

    return step


def measure_paces(name: str, batch: int) -> list[float]:
    """Give the seconds from a step's beginning to each layer's end on the slower device."""
    network = build(name)
    paces = Paces(network, [])
    step = stepping(network, paces, batch)
    noted: list[list[float]] = []
    for _ in range(WARM_UP + PACED):
        step()
        noted.append(paces.noted)
    return [SLOWER * statistics.median(each) for each in zip(*noted[WARM_UP:], strict=True)]


def train(name: str, batch: int, ends_s: list[float], seconds: float) -> dict[str, object]:
    """Train until so many seconds are over on rank 0; gives the middle one of its steps."""
    network = build(name)
    gradient_mb = sum(each.numel() for each in network.parameters()) * 4 / 1e6
    step = stepping(DistributedDataParallel(network), Paces(network, ends_s), batch)
    times_s: list[float] = []
    end_s = time.monotonic() + seconds
    is_over = torch.zeros(1)
    while not is_over.item():
        times_s.append(step())
        is_over[0] = time.monotonic() > end_s and len(times_s) >= WARM_UP + LEAST
        dist.broadcast(is_over, 0)
    counted = times_s[WARM_UP:]
    return {
        "network": name,
        "batch": batch,
        "gradient_mb": round(gradient_mb, 3),
        "step_s": round(statistics.median(counted), 5),
        "steps": len(counted),
    }


def main() -> None:
    torch.set_num_threads(1)
    path = Path(sys.argv[1])
    paces = json.loads(path.read_text())
    if len(sys.argv) == 2:
        for training in paces:
            name, batch = training.split(":")
            paces[training] = measure_paces(name, int(batch))
        path.write_text(json.dumps(paces))
        return
    dist.init_process_group("gloo")
    for training in sys.argv[3:]:
        name, batch = training.split(":")
        found = train(name, int(batch), paces.get(training, []), float(sys.argv[2]))
        if dist.get_rank() == 0:
            print(json.dumps(found), flush=True)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # torch 2.9 over Gloo aborts now and then while the interpreter ends


if __name__ == "__main__":
    main()
