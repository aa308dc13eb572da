"""A DDP script as everybody writes it; it has never heard of this project."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(5):
        inputs = torch.randn(16, 8)
        loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} of {dist.get_world_size()} step {step} loss {loss.item():.4f}")
    os.makedirs("outputs", exist_ok=True)  # noqa: PTH103 (as everybody writes it)
    torch.save(model.module.state_dict(), f"outputs/weights-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
