"""A Horovod script as everybody writes it; it has never heard of this project."""

import os

import horovod.torch as hvd
import torch


def main():
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(5):
        inputs = torch.randn(16, 8)
        loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {hvd.rank()} of {hvd.size()} step {step} loss {loss.item():.4f}")
    os.makedirs("outputs", exist_ok=True)  # noqa: PTH103 (as everybody writes it)
    torch.save(model.state_dict(), f"outputs/weights-{hvd.rank()}.pt")


if __name__ == "__main__":
    main()
