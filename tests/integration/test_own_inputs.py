"""A folder and a file of one's own as inputs, named by placeholders: two ranks on the local stack."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests import needs
from tests.fakes import typed_launch
from tests.fakes.launched_store import Store
from tests.folders import make_folder, read_folder

# Prints what it was told; every rank writes into the output that its arguments name.
PROGRAM = """\
import json, os, sys
mode, words, listed, to, rank = sys.argv[1:]
told = [mode, sorted(os.listdir(words)), open(listed).read(), os.path.basename(listed), rank]
print(json.dumps([*told, os.environ["WHO"], os.environ["KEPT"]]))
open(os.path.join(to, rank), "w").write("x")
"""
JOB = """\
name: mine
image: pytorch
{program}
launcher: {launcher}
processes_per_node: 2
setup: ['cat "${{inputs.words}}/a.txt" > prepared; echo ${{run.id}} >> prepared']
env: {{WHO: '${{run.id}}:${{rank}}', KEPT: '$${{rank}} ${{HOME}}'}}
inputs: {{words: ./words, list: {{path: list.txt, mode: mount}}}}
outputs: {{model: {{}}}}
"""
ARGS = '["train", "${inputs.words}", "${inputs.list}", "${outputs.model}", "${rank}"]'
SHELL = 'cat prepared; exec python train.py "$@" "${outputs.model}" ${rank}'


@pytest.fixture(autouse=True)
def _runtime(tmp_path: Path) -> None:
    needs.runtime("pytorch")
    make_folder(tmp_path, {"words/a.txt": b"alpha\n", "list.txt": b"one", "train.py": b""})
    (tmp_path / "train.py").write_text(PROGRAM)


def launch(store: Store, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return typed_launch.launch(folder, *words, "--env", store.env_file)


@pytest.mark.parametrize("launcher", ["none", "torch", "mpi"])
def test_ranks_find_pushed_inputs_by_placeholders(
    store: Store, tmp_path: Path, launcher: str
) -> None:
    program = f"script: train.py\nargs: {ARGS}"
    (tmp_path / "job.yaml").write_text(JOB.format(program=program, launcher=launcher))
    done = launch(store, tmp_path, "run", "job.yaml", "-y")
    assert done.returncode == 0, done.stderr
    run, *lines = done.stdout.splitlines()
    assert sorted(lines) == [
        f"[{rank}] "
        + json.dumps(
            ["train", ["a.txt"], "one", "list.txt", rank, f"{run}:{rank}", "${rank} ${HOME}"]
        )
        for rank in "01"
    ]
    folder = store.folder / "workspace" / "runs" / run
    assert read_folder(folder / "outputs" / "model") == {"0": b"x", "1": b"x"}
    assert (folder / "nodes/0/prepared").read_text() == f"alpha\n{run}\n"
    record = json.loads((folder / "run.json").read_text())["plan"]["spec"]
    assert record["command"] == ["python", "train.py", *json.loads(ARGS)]
    assert record["env"] == {"WHO": "${run.id}:${rank}", "KEPT": "$${rank} ${HOME}"}


def test_a_shell_is_given_variables_and_a_rerun_the_version_of_its_run(
    store: Store, tmp_path: Path
) -> None:
    command = json.dumps(["bash", "-c", SHELL, "bash", "x", "${inputs.words}", "${inputs.list}"])
    program = f"command: {command}\ncode: ."
    (tmp_path / "job.yaml").write_text(JOB.format(program=program, launcher="none"))
    done = launch(store, tmp_path, "run", "job.yaml", "-y")
    assert done.returncode == 0, done.stderr
    (tmp_path / "words" / "b.txt").write_text("beta")
    again = launch(store, tmp_path, "rerun", "last", "-y")
    assert again.returncode == 0, again.stderr
    for each in (done, again):
        run, *lines = each.stdout.splitlines()
        told = [
            json.loads(line[4:]) for line in sorted(lines) if line.startswith(("[0] [", "[1] ["))
        ]
        assert told == [
            ["x", ["a.txt"], "one", "list.txt", rank, f"{run}:{rank}", "${rank} ${HOME}"]
            for rank in "01"
        ]
