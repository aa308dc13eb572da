"""Fit a sine with a small network, trained with Horovod for torch."""

import argparse
import json
import math
import os
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import nn


def make_sine(num_points: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Places between -pi and pi, and the noisy sine there."""
    generator = torch.Generator().manual_seed(seed)
    places = (torch.rand(num_points, 1, generator=generator) * 2 - 1) * math.pi
    return places, places.sin() + 0.05 * torch.randn(num_points, 1, generator=generator)


def log(step: int, epoch: int, split: str, **values: float) -> None:
    """Append to the metrics that `launch report` reads; without `launch`, write nothing."""
    folder = os.environ.get("TRAINYARD_RUN_DIR")
    if folder and hvd.rank() == 0:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with open(Path(folder) / "metrics.jsonl", "a", encoding="utf-8") as file:
            for name, value in values.items():
                place = {"ts": now, "step": step, "epoch": epoch, "split": split}
                file.write(json.dumps({**place, "name": name, "value": value}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.01)
    options = parser.parse_args()

    hvd.init()
    places, sines = make_sine(1024, seed=1)
    places, sines = places[hvd.rank() :: hvd.size()], sines[hvd.rank() :: hvd.size()]
    test_places, test_sines = make_sine(256, seed=2)

    torch.manual_seed(hvd.rank())  # ranks begin apart: the broadcast makes them one
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    loss_of, step = nn.MSELoss(), 0
    batch_size = options.batch_size // hvd.size()
    for epoch in range(1, options.epochs + 1):
        for start in range(0, len(places), batch_size):
            batch = slice(start, start + batch_size)
            optimizer.zero_grad()
            loss = loss_of(model(places[batch]), sines[batch])
            loss.backward()
            optimizer.step()
            step += 1
        mean = hvd.allreduce(loss.detach(), name="loss").item()
        with torch.no_grad():
            error = loss_of(model(test_places), test_sines).sqrt().item()
        log(step, epoch, "train", loss=mean)
        log(step, epoch, "test", rmse=error)
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {mean:.4f}, rmse {error:.4f}")

    weights = sum(each.detach().double().sum() for each in model.parameters())
    if hvd.allgather(weights.reshape(1)).unique().numel() != 1:
        raise SystemExit("error: ranks hold different weights")
    if hvd.rank() == 0:
        folder = Path(os.environ.get("TRAINYARD_OUTPUT_MODEL", "model"))
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), folder / "sine.pt")
        print(f"final rmse {error:.4f} (ranks: {hvd.size()})")


if __name__ == "__main__":
    main()
