"""A gang of stdlib ranks that train one number, and leave with exit code 75 when asked to.

    preemptible.py STEPS [RANK:STEP ...]        (that rank is asked to leave at that step)

The number depends on every step and its order. Rank 0 keeps it in checkpoints of the documented
layout, and goes on from the newest; it is slow to write one, and the others do not wait for it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

RUN_DIR = Path(os.environ["TRAINYARD_RUN_DIR"])
CHECKPOINTS = Path(os.environ["TRAINYARD_CHECKPOINT_DIR"])
RANK = int(os.environ["RANK"])
SLOW_SAVE_S = float(os.environ.get("SLOW_SAVE_S", "0.3"))


def newest() -> dict[str, Any]:
    found = sorted(CHECKPOINTS.glob("*/manifest.json"))
    return json.loads(found[-1].with_name("state.json").read_text()) if found else {}


def save(step: int, value: int) -> None:
    folder = CHECKPOINTS / f"step-{step:09d}-{os.getpid():08x}"
    folder.mkdir()
    (folder / "state.json").write_text(json.dumps({"step": step, "value": value}))
    time.sleep(SLOW_SAVE_S)
    saved = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    manifest = {"format": 1, "step": step, "saved": saved, "about": {}, "files": {}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def meet(step: int) -> None:
    """Wait for all ranks, as an agreement does: none leaves before the last one has come this far."""
    (RUN_DIR / f"at-{step}-{RANK}").touch()
    while len(list(RUN_DIR.glob(f"at-{step}-*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.005)


def leave(step: int, value: int, why: str) -> None:
    if RANK == 0:
        save(step, value)
    print(f"preempted: {why}; checkpoint of step {step} is kept", flush=True)
    time.sleep(float(os.environ.get("SLOW_EXIT_S", "0")))
    sys.exit(75)


def main() -> None:
    num_steps = int(sys.argv[1])
    pairs = (each.split(":") for each in sys.argv[2:])
    leaving = {int(step): int(rank) for rank, step in pairs}
    asked: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append("SIGTERM"))
    begin = newest()
    step, value = begin.get("step", 0), begin.get("value", 1)
    print(f"from step {step}", flush=True)
    while step < num_steps:
        step += 1
        value = (value * 6364136223846793005 + step) % (1 << 64)
        if RANK == 0:
            with (RUN_DIR / "metrics.jsonl").open("a") as file:
                line = {"ts": "", "step": step, "epoch": 1, "split": "train"}
                file.write(json.dumps({**line, "name": "value", "value": value % 1000}) + "\n")
        time.sleep(0.01)
        if asked:
            leave(step, value, asked[0])
        # A real trainer's ranks agree, and all leave at the same step; here all know beforehand.
        if step in leaving:
            meet(step)
            own = "Azure's scheduled event Preempt"
            leave(step, value, own if leaving[step] == RANK else "another rank was asked to leave")
    if RANK == 0:
        (RUN_DIR / "outputs" / "value.txt").write_text(f"{step} {value}")


main()
