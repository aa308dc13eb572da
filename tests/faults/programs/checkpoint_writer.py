"""Writes checkpoints without a framework, between two calls that a trace can find.

python checkpoint_writer.py ROOT KEEP_LAST KEEP_EVERY STEP...

Prints `begun`, and at the end as JSON which steps were written and what was said.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from trainer.common import checkpoint

# Several writes a file, so that a crash can come between them.
checkpoint.CHUNK_BYTES = 4096


def files(step: int) -> dict[str, bytes]:
    """What a checkpoint of the step holds."""
    return {
        "model.safetensors": f"weights {step} ".encode() * 1500,
        "ranks.safetensors": b"",
        "state.json": f'{{"step": {step}}}'.encode(),
    }


def main() -> None:
    root, keep_last, keep_every, *steps = sys.argv[1:]
    folder = checkpoint.CheckpointFolder(
        Path(root), keep_last=int(keep_last), keep_every=int(keep_every) or None
    )
    written: list[int] = []
    said: list[str] = []
    print("begun", flush=True)
    mark("begin")
    for step in map(int, steps):
        try:
            folder.write(step, files(step), {"step": step})
            written.append(step)
            folder.remove_old(said.append)
        except OSError as error:
            said.append(str(error))
    mark("end")
    print(json.dumps({"written": written, "said": said}), flush=True)


def mark(name: str) -> None:
    os.access(f"/trainyard-mark-{name}", os.F_OK)


if __name__ == "__main__":
    main()
