"""Tell two rings of points apart: a small network, trained with DistributedDataParallel."""

import argparse
import json
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_rings(num_points: int, seed: int) -> TensorDataset:
    """Points of two noisy rings, and the ring of each."""
    generator = torch.Generator().manual_seed(seed)
    rings = torch.randint(2, (num_points,), generator=generator)
    angles = torch.rand(num_points, generator=generator) * 2 * math.pi
    radii = 1.0 + rings + 0.2 * torch.randn(num_points, generator=generator)
    points = torch.stack([radii * angles.cos(), radii * angles.sin()], dim=1)
    return TensorDataset(points, rings.float())


def log(step: int, epoch: int, split: str, **values: float) -> None:
    """Append to the metrics that `launch report` reads; without `launch`, write nothing."""
    folder = os.environ.get("TRAINYARD_RUN_DIR")
    if folder and dist.get_rank() == 0:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with open(Path(folder) / "metrics.jsonl", "a", encoding="utf-8") as file:
            for name, value in values.items():
                place = {"ts": now, "step": step, "epoch": epoch, "split": split}
                file.write(json.dumps({**place, "name": name, "value": value}) + "\n")


@torch.no_grad()
def evaluate(model: nn.Module, test: TensorDataset) -> float:
    points, rings = test.tensors
    return ((model(points).squeeze(1) > 0) == rings.bool()).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.01)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    train, test = make_rings(2048, seed=1), make_rings(512, seed=2)
    sampler = DistributedSampler(train, seed=0)
    loader = DataLoader(train, options.batch_size // world_size, sampler=sampler)

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    loss_of = nn.BCEWithLogitsLoss()
    step = 0
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        for points, rings in loader:
            loss = loss_of(model(points).squeeze(1), rings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        mean = loss.detach() / world_size
        dist.all_reduce(mean)
        accuracy = evaluate(network, test)
        log(step, epoch, "train", loss=mean.item())
        log(step, epoch, "test", accuracy=accuracy)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean.item():.4f}, accuracy {accuracy:.4f}")

    weights = sum(each.detach().double().sum() for each in network.parameters())
    of_ranks = [torch.zeros_like(weights) for _ in range(world_size)]
    dist.all_gather(of_ranks, weights)
    if torch.stack(of_ranks).unique().numel() != 1:
        raise SystemExit("error: ranks hold different weights")
    if rank == 0:
        folder = Path(os.environ.get("TRAINYARD_OUTPUT_MODEL", "model"))
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(network.state_dict(), folder / "rings.pt")
        print(f"final accuracy {accuracy:.4f} (ranks: {world_size})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
