"""The peer of P2: what timm's benchmark of training does at its best settings, in our words.

Source: pytorch-image-models, benchmark.py with `--bench train --model resnet50 --amp --amp-dtype
bfloat16 --channels-last` and `--torchcompile`, which timm's package on PyPI does not carry.
"""

import argparse
import time

import timm
import torch
from timm.optim import create_optimizer_v2

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--warm-up-steps", type=int, default=30)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--compile", action="store_true")
options = parser.parse_args()

device = torch.device("cuda")
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
network = timm.create_model("resnet50").to(device, memory_format=torch.channels_last).train()
optimizer = create_optimizer_v2(network, opt="sgd", lr=1e-4)
model = torch.compile(network) if options.compile else network
shape = (options.batch_size, 3, 224, 224)
data = torch.randn(shape, device=device).contiguous(memory_format=torch.channels_last)
target = torch.randint(0, 1000, (options.batch_size,), device=device)
criterion = torch.nn.CrossEntropyLoss()


def step() -> None:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(data), target)
    loss.backward()
    optimizer.step()


for _ in range(options.warm_up_steps):
    step()
torch.cuda.synchronize()
began = time.perf_counter()
for _ in range(options.steps):
    step()
torch.cuda.synchronize()
print(options.batch_size * options.steps / (time.perf_counter() - began))
