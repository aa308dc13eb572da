"""The notebooks of the docs, each run whole by a kernel, on an environment of this machine."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from jobs.contracts.spec import Environment
from jobs.engines import load_engine
from jobs.rank.notebook import notebook_command
from tests import needs
from tests.fakes.gangs import make_environment
from tests.fakes.launching import FakeEngine, make_spec
from tests.pulumi_project import REPO

NOTEBOOKS = REPO / "docs" / "notebooks"
SMALL = {"args.epochs": 2, "args.image-size": 32}
LOCAL = json.dumps('where = {"stack": "local"}')[1:-1]
SWEPT = json.dumps('"mnist-synthetic"')[1:-1]
# Trains nothing, and tells what a training would: the lower its rate, the better.
JOB = """\
name: swept
image: pytorch
launcher: none
script: train.py
args: {lr: 0.1, batch-size: 64, epochs: 4}
"""
SCRIPT = """\
import json, os, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
told = {"name": "accuracy", "split": "test", "goal": "max", "value": 1 - float(options["--lr"]) / 2}
assert (options["--batch-size"], options["--epochs"]) == ("64", "2")
with open(os.path.join(os.environ["TRAINYARD_RUN_DIR"], "metrics.jsonl"), "a") as file:
    for epoch in (1, 2):
        file.write(json.dumps({**told, "epoch": epoch}) + chr(10))
"""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    """A free cluster of two nodes with one rank each; no run of it outlives the test."""
    needs.runtime("pytorch")
    made = make_environment(tmp_path / "workspace", nodes=2, processes=1)
    cluster = replace(made.clusters["cpu"], price_per_node_hour=0.0, cpus_per_node=1)
    made = replace(made, clusters={"cpu": cluster})
    yield made
    engine = load_engine(made)
    for run in engine.store.list(None):
        if not run.state.is_terminal():
            engine.cancel(engine.store.handle(run.id))


@pytest.fixture
def execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Execute a notebook on an environment file; gives the outputs of each of its cells, by type."""

    def run(
        name: str, environment: Environment, job: str = SWEPT, **parameters: Any
    ) -> list[dict[str, str]]:
        file = tmp_path / "environment.json"
        file.write_bytes(msgspec.json.encode(environment))
        text = (NOTEBOOKS / name).read_text(encoding="utf-8")
        assert text.count(LOCAL) == 1
        assert job == SWEPT or text.count(SWEPT) == 1
        text = text.replace(SWEPT, job)
        own = tmp_path / name
        # json.dumps: it is a line of Python within JSON.
        own.write_text(text.replace(LOCAL, json.dumps(f'where = {{"env": "{file}"}}')[1:-1]))
        shown = tmp_path / "shown.ipynb"
        command = notebook_command(sys.executable, [name, str(shown), json.dumps(parameters)])
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        cells = json.loads(shown.read_text(encoding="utf-8"))["cells"]
        tags = [each["metadata"].get("tags") for each in cells]
        return [
            _shown(each["outputs"])
            for each, told in zip(cells, tags, strict=True)
            if each["cell_type"] == "code" and not told
        ]

    return run


def _shown(outputs: list[dict[str, Any]]) -> dict[str, str]:
    told = {each["name"]: "".join(each["text"]) for each in outputs if "name" in each}
    for each in outputs:
        told |= {kind: "".join(text) for kind, text in each.get("data", {}).items()}
    return told


def test_ants_are_told_from_bees_and_the_model_is_fetched(execute, environment):
    shown = execute("ants_and_bees.ipynb", environment, changed=SMALL)
    assert "hymenoptera-synthetic</strong>" in shown[0]["text/html"]
    assert '<svg role="img" aria-label="top1"' in shown[0]["text/html"]
    assert shown[1]["text/plain"].split()[:3] == ["epoch", "split", "value"]
    assert shown[2]["image/png"].startswith("iVBOR")
    sizes = ast.literal_eval(shown[3]["text/plain"])
    assert list(sizes) == ["hymenoptera.json", "hymenoptera.safetensors"]
    assert 44e6 < sizes["hymenoptera.safetensors"] < 45e6
    assert [each for each in shown if "stderr" in each] == []


def test_a_sweep_ends_with_a_table_and_a_picture_of_all_its_runs(execute, environment, tmp_path):
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "train.py").write_text(SCRIPT)
    few = {"rates": [0.001, 1.0], "batches": [64], "fixed": {"args.epochs": 2}}
    shown = execute(
        "sweep.ipynb", environment, job=json.dumps(f'"{tmp_path}/job.yaml"')[1:-1], **few
    )
    table = [line.split() for line in shown[1]["text/plain"].splitlines()]
    assert table == [
        ["batch", "64"],
        ["learning", "rate"],
        ["0.001", "0.9995"],
        ["1.000", "0.5000"],
    ]
    assert "swept</strong>" in shown[2]["text/html"]
    assert shown[3]["image/png"].startswith("iVBOR")


@pytest.mark.faults
def test_a_sweep_of_the_catalogs_digits_trains_each(execute, environment):
    few = {"rates": [0.001, 1.0], "batches": [64], "fixed": {"args.epochs": 1}}
    shown = execute("sweep.ipynb", environment, **few)
    table = [line.split() for line in shown[1]["text/plain"].splitlines()]
    assert table[0] == ["batch", "64"]
    assert [row[0] for row in table[2:]] == ["0.001", "1.000"]
    assert "mnist-synthetic</strong>" in shown[2]["text/html"]
    assert shown[3]["image/png"].startswith("iVBOR")


def test_an_environment_tells_what_it_costs(execute, environment):
    cluster = replace(
        environment.clusters["cpu"], min_nodes=1, price_per_node_hour=2.5, currency="USD"
    )
    environment = replace(environment, clusters={"cpu": cluster})
    engine = FakeEngine(environment)
    run = engine.submit(engine.plan(make_spec(["true"])), {})
    engine.submitted.clear()

    shown = execute("environment_costs.ipynb", environment)

    cells = re.findall(r"<t[hd]>(.*?)</t[hd]>", shown[0]["text/html"])
    assert cells[-8:] == ["cpu", "local", "dedicated", "2", "2.5", "60.0", "5.0", "USD"]
    assert "not known" in shown[1]["text/plain"]
    told = shown[2]["text/plain"].splitlines()[1].split()
    assert told[1:3] == [run.id, "completed"]
    assert (float(told[3]), told[4]) == (pytest.approx(42 / 3600 * 2.5, rel=0.01), "USD")
