"""The peer of P5 and P1: what Horovod's own synthetic benchmark does, in our words.

Source: horovod, examples/pytorch/pytorch_synthetic_benchmark.py (0.28.1; its source archive on PyPI
does not carry the examples): torchvision's ResNet-50 in fp32 and its usual memory format, SGD under
Horovod's optimizer, one batch of noise, pictures per second over rounds of ten steps. It prints the
mean of the rounds. `--plain` leaves Horovod out, where it is not installed: that is no slower.
"""

import argparse
import time

import torch
from torch.nn.functional import cross_entropy
from torchvision.models import resnet50

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--warm-up-steps", type=int, default=10)
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--steps", type=int, default=10, help="of a round")
parser.add_argument("--plain", action="store_true")
options = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cudnn.benchmark = True
model = resnet50().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if not options.plain:
    import horovod.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
data = torch.randn(options.batch_size, 3, 224, 224, device=device)
target = torch.randint(0, 1000, (options.batch_size,), device=device)


def step() -> None:
    optimizer.zero_grad()
    cross_entropy(model(data), target).backward()
    optimizer.step()


for _ in range(options.warm_up_steps):
    step()
rates = []
for _ in range(options.rounds):
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(options.steps):
        step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    rates.append(options.batch_size * options.steps / (time.perf_counter() - began))
print(sum(rates) / len(rates))
