"""Adds up the ranks by torch.distributed."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(value)
print("sum", int(value.item()), "of", dist.get_world_size(), "ranks")
dist.destroy_process_group()
