"""A stock torch.distributed rank that meets its peers once and ends."""

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("met", dist.get_rank(), "of", dist.get_world_size())
dist.destroy_process_group()
