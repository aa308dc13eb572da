"""Reads its input, writes a metric a step and a model; fails or waits when told to."""
import json, os, pathlib, sys, time
run = pathlib.Path(os.environ["TRAINYARD_RUN_DIR"])
rank = int(os.environ["RANK"])
data = pathlib.Path(os.environ["TRAINYARD_INPUT_DATA"])
print("files", sorted(p.name for p in data.iterdir()), flush=True)
if rank == 0:
    with open(run / "metrics.jsonl", "w") as file:
        for step in range(5):
            print(json.dumps({"ts": f"2026-11-22T12:00:0{step}.000000Z", "step": step, "epoch": 0, "split": "train", "name": "loss", "value": 1 / (step + 1)}), file=file)
    (run / "outputs" / "model.txt").write_text("weights\n")
    (run / "summary.json").write_text(json.dumps({"loss": 0.2}))
if "--fail" in sys.argv and rank == 1:
    raise ValueError("no luck")
