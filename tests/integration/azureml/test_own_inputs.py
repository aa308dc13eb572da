"""A folder and a file of one's own as inputs, named by placeholders: ranks on the stand-in Azure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure
from tests.folders import make_folder

PROGRAM = """
import json, os, sys
words, listed, to, rank = sys.argv[1:]
told = [sorted(os.listdir(words)), open(listed).read(), os.path.basename(listed), rank]
print(json.dumps([*told, os.environ["WHO"], os.environ["PLAIN"]]))
open(os.path.join(to, rank), "w").write("x")
"""


@pytest.mark.parametrize("launcher", ["none", "tensorflow"])
def test_ranks_on_two_nodes_find_pushed_inputs_by_placeholders(
    azure: FakeAzure, tmp_path: Path, launcher: str
) -> None:
    launch = AzureLaunch(azure, tmp_path)
    make_folder(tmp_path / "job", {"words/a.txt": b"alpha\n", "list.txt": b"one"})
    job = launch.write_job(
        PROGRAM,
        name=f"own-{launcher}",
        launcher=launcher,
        nodes=2,
        args=["${inputs.words}", "${inputs.list}", "${outputs.model}", "${rank}"],
        env={"WHO": "${run.id}:${rank}", "PLAIN": "${HOME}"},
        setup=['cat "${inputs.words}/a.txt"'],
        inputs={"words": "./words", "list": {"path": "list.txt", "mode": "mount"}},
        outputs={"model": {}},
    )
    planned = json.loads(launch.type("plan", job, "--json").out)
    assert planned["spec"]["inputs"]["words"]["source"]["missing_files"] == 1
    assert planned["request"]["node_job"]["env"] == {"WHO": "${run.id}:${rank}"}
    assert planned["request"]["node_job"]["files"] == {"list": "list.txt"}
    done = launch.type("run", job, "-y", "--no-fetch")
    assert done.code == 0, done.err
    run, *lines = done.out.splitlines()
    told = [json.loads(line[4:]) for line in sorted(lines) if '"one"' in line]
    assert told == [
        [["a.txt"], "one", "list.txt", rank, f"{run}:{rank}", "${HOME}"] for rank in "01"
    ]
    body = azure.requests(method="PUT", path=f"/jobs/{run}")[-1].json["properties"]
    variables = body["environmentVariables"]
    assert (variables.get("WHO"), variables["PLAIN"]) == (None, "${HOME}")
    assert body["inputs"]["list"]["mode"] == "ReadOnlyMount"

    (tmp_path / "job" / "words" / "b.txt").write_text("beta")
    again = launch.type("rerun", run, "-y", "--no-fetch")
    assert again.code == 0, again.err
    other = again.out.splitlines()[0]
    told = [json.loads(line[4:]) for line in again.out.splitlines() if '"one"' in line]
    assert sorted(told, key=lambda each: each[3]) == [
        [["a.txt"], "one", "list.txt", rank, f"{other}:{rank}", "${HOME}"] for rank in "01"
    ]
