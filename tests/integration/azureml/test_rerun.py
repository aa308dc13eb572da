"""Verbs that make a run of another, on the stand-in Azure: data, rerun, diff, and code unchanged."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure

# Sums what it finds in its input; each run makes two steps, from the newest checkpoint on.
PROGRAM = """
import json, os, sys
from pathlib import Path
values = Path(os.environ["TRAINYARD_INPUT_NUMBERS"], "values.txt").read_text().split()
checkpoints, run = Path(os.environ["TRAINYARD_CHECKPOINT_DIR"]), Path(os.environ["TRAINYARD_RUN_DIR"])
saved = sorted(checkpoints.glob("*/manifest.json"))
begin = json.loads(saved[-1].read_text())["step"] if saved else 0
print("begins with", [each.parent.name for each in saved])
for step in (begin + 1, begin + 2):
    folder = checkpoints / f"step-{step:09}-aaaaaaaa"
    folder.mkdir()
    (folder / "state").write_text("state")
    (folder / "manifest.json").write_text(json.dumps({"step": step}))
figure = sum(map(int, values)) * int(sys.argv[sys.argv.index("--scale") + 1])
entry = {"ts": "2026-11-21T12:00:00.000000Z", "step": begin + 2, "epoch": 1}
with (run / "metrics.jsonl").open("a") as metrics:
    print(json.dumps({**entry, "split": "train", "name": "sum", "value": figure}), file=metrics)
(run / "summary.json").write_text("{}")
"""


def test_a_run_with_mounted_data_is_rerun_from_its_checkpoint_and_compared(
    azure: FakeAzure, tmp_path: Path
) -> None:
    launch = AzureLaunch(azure, tmp_path)
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers" / "values.txt").write_text("1 2 3")
    pushed = launch.type("data", "push", "numbers", "numbers")
    assert pushed.code == 0, pushed.err
    numbers = {"numbers": {"dataset": "numbers", "mode": "mount"}}
    job = launch.write_job(PROGRAM, code=".", inputs=numbers, args={"scale": 1})
    first = launch.type("run", job, "-y", "--no-fetch")
    assert first.code == 0, first.err
    run, *said = first.out.splitlines()
    assert said == ["[0] begins with []"]
    body = azure.requests(method="PUT", path=f"/jobs/{run}")[-1].json["properties"]
    assert body["inputs"]["numbers"]["mode"] == "ReadOnlyMount"

    # What was fetched does not travel, so the code is what it was.
    assert launch.type("fetch", run, "--into", "job/results").code == 0
    planned = json.loads(launch.type("plan", job, "--json").out)["request"]["code"]
    assert planned["left_out"] == ["results/"]
    assert body["codeId"].endswith(f"/codes/{planned['name']}/versions/1")

    words = ("--resume", "--set", "args.scale=2", "-y", "--no-fetch")
    resumed = launch.type("rerun", run, *words)
    assert resumed.code == 0, resumed.err
    again, *said = resumed.out.splitlines()
    names = [f"step-{step:09}-aaaaaaaa" for step in (1, 2, 3, 4)]
    assert said == [f"[0] begins with {names[:2]}"]
    shown = json.loads(launch.type("show", again, "--json").out)
    assert (shown["checkpoints"]["count"], shown["checkpoints"]["newest"]["step"]) == (4, 4)

    compared = json.loads(launch.type("diff", run, again, "--json").out)
    assert [each["key"] for each in compared["differences"]] == ["args.scale", "resumed from"]
    assert compared["metrics"] == [{"name": "train sum", "a": 6.0, "b": 12.0}]
