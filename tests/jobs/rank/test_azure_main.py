"""rank.pyz in a folder of this machine, as Azure ML starts it; its store is no host of Azure's."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.rank.azure_main import begin
from tests.fakes.azureml.ranks import lay_code
from tests.fakes.rank_settings import TOLD


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A job's code, laid by Azure ML."""
    (tmp_path / "program.py").write_text("print('trained')\n")
    lay_code(tmp_path)
    return tmp_path


def start(
    node: Path, environ: Mapping[str, str] | None = None, **settings: Any
) -> tuple[int, list[str]]:
    """Run one rank to its end; gives its exit code and its log, without stamps and the store's."""
    told = base64.urlsafe_b64encode(json.dumps({**TOLD, **settings}).encode()).decode()
    done = subprocess.run(
        [sys.executable, "-I", "-S", ".trainyard/rank.pyz", f"checkpoints={node}"],
        cwd=node,
        env={
            "PATH": os.environ["PATH"],
            "TRAINYARD_RUN": "a",
            "TRAINYARD_ATTEMPT": "1",
            "TRAINYARD_JOB": told,
            **(environ or {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    lines = [line.split(" ", 1)[1] for line in done.stdout.splitlines()]
    return done.returncode, [line for line in lines if "is not sent to" not in line]


def test_a_job_that_azure_begins_again_in_its_folder_prepares_it_anew(node: Path) -> None:
    left = node / ".trainyard" / "run" / "nodes" / "0"
    left.mkdir(parents=True)
    (left / "program.py").write_text("half of it was there when the fir")
    assert start(node) == (0, ["trained"])
    # And once more, where that start came to its end.
    assert start(node) == (0, ["trained"])


def test_a_failing_worker_does_not_pass_for_one_that_served_in_the_start_before(
    node: Path,
) -> None:
    run = node / ".trainyard" / "run"
    with begin(str(run), 1):
        (run / "served-1").touch()
    (node / "program.py").write_text("raise SystemExit(3)")
    lay_code(node)
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    assert start(node, {"TF_CONFIG": json.dumps(config)}, chief=True) == (3, [])


def test_only_a_rank_that_comes_once_more_begins_a_start(tmp_path: Path) -> None:
    run = tmp_path / "run"
    left = run / "left"
    with begin(str(run), 0):
        left.touch()
    # The first one is over already when the second one comes.
    with begin(str(run), 1):
        assert left.exists()
        with begin(str(run), 0):
            assert left.exists()
    with begin(str(run), 1):
        assert not left.exists()
        left.touch()
        with begin(str(run), 0):
            assert left.exists()


def test_a_disk_that_takes_no_stream_ends_the_rank_with_a_record(node: Path) -> None:
    run = node / ".trainyard" / "run"
    run.mkdir()
    (run / "cache").write_text("where a folder has to be")
    code, (line,) = start(node, streams={"digits": {"files": "list", "prefix": "digits/"}})
    assert code == 1
    assert line.startswith("error: [Errno 17] File exists: ")
    assert line.endswith(" (the node's disk must hold the cache of a stream)")
    record = json.loads((run / "ranks" / "00000.json").read_text())
    assert (record["stage"], record["exit_code"]) == ("setup", 1)


def test_requirements_that_cannot_be_installed_end_the_rank_with_pips_words(node: Path) -> None:
    (node / "needed.txt").write_text("--no-index\nno-such-package\n")
    lay_code(node)
    code, lines = start(node, requirements="needed.txt")
    told = "ERROR: No matching distribution found for no-such-package"
    assert (code, lines.count(told)) == (1, 1)
    record = json.loads((node / ".trainyard/run/ranks/00000.json").read_text())
    assert [record[name] for name in ("stage", "exit_code", "setup")] == [
        *("setup", 1, "pip install -r needed.txt")
    ]


@pytest.mark.parametrize("local_rank", [1, 0])
def test_an_mpirun_that_deals_ranks_otherwise_is_told_of(node: Path, local_rank: int) -> None:
    """Rank 1 of four on two nodes: its node's second, or the first of the other one."""
    of_mpirun = {"RANK": "1", "SIZE": "4", "LOCAL_RANK": str(local_rank), "LOCAL_SIZE": "2"}
    environ = {f"OMPI_COMM_WORLD_{name}": value for name, value in of_mpirun.items()}
    code, lines = start(node, environ)
    warning = (
        "warning: mpirun does not fill one node after the other: NODE_RANK is wrong, and `setup` may "
        "run more than once a node"
    )
    assert (code, lines) == (0, [*([] if local_rank else [warning]), "trained"])


@pytest.mark.parametrize(
    ("own", "seen"), [({}, "ndv4-topology.xml"), ({"NCCL_TOPO_FILE": "/opt/mine.xml"}, "mine.xml")]
)
def test_nccl_gets_the_nodes_topology_unless_the_job_has_one(
    node: Path, own: dict[str, str], seen: str
) -> None:
    (node / "program.py").write_text(
        "import os; print(os.path.basename(os.environ['NCCL_TOPO_FILE']))"
    )
    lay_code(node)
    assert start(node, own, topology="ndv4") == (0, [seen])


def test_what_lets_others_act_as_the_node_or_the_run_is_struck_out_of_the_log(node: Path) -> None:
    names = ("MSI_SECRET", "IDENTITY_HEADER", "AZUREML_RUN_TOKEN")
    (node / "program.py").write_text(
        f"import os\nfor name in {names}:\n    print(os.environ[name])\n"
    )
    lay_code(node)
    told = {name: f"value-of-{name}" for name in names}
    assert start(node, told) == (0, ["***", "***", "***"])
