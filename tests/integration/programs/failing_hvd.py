"""Averages with Horovod without end; one rank fails.    failing_hvd.py WAY RANK"""

import failing

failing.sign_of_life()

import horovod.torch as hvd  # noqa: E402
import torch  # noqa: E402

hvd.init()
failing.is_loaded.set()
for step in range(1_000_000):
    hvd.allreduce(torch.ones(1000), name="gradients")
    if step == 3 and failing.is_guilty(hvd.rank()):
        failing.fail()
    if step < 4:
        print(f"step {step}")
    go_on = torch.tensor([float(failing.is_held() or len(failing.sys.argv) > 1)])
    if not hvd.broadcast(go_on, 0, name="go on"):
        break
print("done")
