"""Trains with DDP without end; one rank fails.    failing_ddp.py WAY RANK"""

import os
import sys

import failing

failing.sign_of_life()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
failing.is_loaded.set()
for step in range(1_000_000):
    model(torch.randn(16, 8)).mean().backward()
    if step == 3 and failing.is_guilty(dist.get_rank()):
        failing.fail()
    if step < 4:
        print(f"step {step}")
    go_on = torch.tensor(failing.is_held() or len(failing.sys.argv) > 1)
    dist.broadcast(go_on, 0)
    if not go_on:
        break
print("done")
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # torch 2.9 over Gloo aborts now and then while the interpreter ends
