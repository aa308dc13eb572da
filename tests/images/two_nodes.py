"""Trains a small network on two nodes as an engine of ours would, whatever files the nodes have."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.rank.program import rank_program
from tests.fakes.nodes import Node
from trainer.data.disk.events import Events
from trainer.data.prepare.digits import prepare_digits

# The forms that `mpirun` is given on Azure's nodes: Azure ML does not publish its own line (docs/images.md),
# these are the options of Horovod's documentation, with one hyphen as they stand there.
MPIRUN = (
    *("mpirun", "--allow-run-as-root", "-np", "2", "-bind-to", "none", "-map-by", "slot"),
    *(
        "-x",
        "NCCL_DEBUG=WARN",
        "-x",
        "NCCL_SOCKET_IFNAME=eth0",
        "-mca",
        "btl_tcp_if_include",
        "eth0",
    ),
    *("-mca", "pml", "ob1", "-mca", "btl", "^openib"),
)
# Two ranks and whoever else computes here share few cores.
SPARING = {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
RANK = ("python", "-I", "-S", "run/rank.pyz", "run/rank.json")
TIMEOUT_S = 300
PROGRAMS = Path(__file__).parents[1] / "integration" / "programs"


def mnist(strategy: str) -> Sequence[str]:
    """Give the command of a training of digits, by Horovod or DDP."""
    program = ("trainer.pytorch.mnist", "--data", "digits", "--epochs", "1")
    return ("python", "-m", *program, "--strategy", strategy)


def resnet_tf(strategy: str) -> Sequence[str]:
    """Give the command of a training on noise, which needs no files: two steps of two ranks."""
    sizes = ("--num-images", "16", "--batch-per-rank", "4", "--image-size", "32")
    program = ("trainer.tf.resnet50", "--data", "random", *sizes)
    more = ("--epochs", "1", "--warmup-epochs", "0", "--strategy", strategy)
    return ("python", "-m", *program, *more)


def others_scripts(strategy: str) -> Sequence[str]:
    """Give the command of a script that does not use Trainyard."""
    return ("python", {"horovod": "stock_keras2.py", "mwms": "stock_mwms.py"}[strategy])


def lay_run(folder: Path, command: Sequence[str], *, seen_at: str) -> None:
    """Write the digits and a run directory; `seen_at` is the place of both on the nodes."""
    prepare_digits(folder / "digits", Events(as_json=True))
    run = folder / "run"
    if run.exists():  # of a training that failed
        shutil.rmtree(run)
    for name in ("code", "nodes", "logs", "ranks", "outputs/model", "checkpoints"):
        (run / name).mkdir(parents=True)
    (run / "rank.pyz").write_bytes(rank_program())
    for script in PROGRAMS.glob("stock_*.py"):
        shutil.copy(script, run / "code")
    words = [f"{seen_at}/digits" if word == "digits" else word for word in command]
    job = {"run_dir": f"{seen_at}/run", "command": words, "outputs": ["model"]}
    (run / "rank.json").write_text(json.dumps(job), encoding="utf-8")
    hosts = "".join(f"10.42.0.1{n} slots=1\n" for n in (0, 1))
    (folder / "hosts").write_text(hosts, encoding="utf-8")


def train_by_mpirun(node: Node, environ: Mapping[str, str], *, options: Sequence[str] = ()) -> str:
    """Start a rank on each of two nodes from the first, as Azure ML does."""
    passed = [word for name in SPARING for word in ("-x", name)]
    line = [*MPIRUN, *passed, *options, "--hostfile", "hosts", *RANK]
    typed = node.run(
        "sh", "-c", f"cd {environ['AT']} && exec {' '.join(line)}", environ={**environ, **SPARING}
    )
    assert typed.returncode == 0, typed.stdout + typed.stderr
    return typed.stdout


def of_pytorch(rank: int, addresses: Sequence[str]) -> dict[str, str]:
    """Give the variables that Azure ML gives to a rank of `PyTorch` jobs."""
    return {
        "GLOO_SOCKET_IFNAME": "eth0",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": "6105",
        "NODE_RANK": str(rank),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(addresses)),
    }


def of_tensorflow(rank: int, addresses: Sequence[str]) -> dict[str, str]:
    """Give the variable that Azure ML gives to a worker of `TensorFlow` jobs."""
    cluster = {"worker": [f"{address}:6106" for address in addresses]}
    task = {"type": "worker", "index": rank}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def train_by_environment(
    nodes: Sequence[Node],
    environ: Mapping[str, str],
    variables: Callable[[int, Sequence[str]], Mapping[str, str]] = of_pytorch,
) -> None:
    """Start a rank on each node by itself, with the variables of its place among these addresses."""
    started = []
    for rank, node in enumerate(nodes):
        theirs = {"AZUREML_NODE_COUNT": "2", **variables(rank, [each.address for each in nodes])}
        words = ("sh", "-c", f"cd {environ['AT']} && exec {' '.join(RANK)}")
        command = node.start(words, {**environ, **SPARING, **theirs})
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    said = [each.communicate(timeout=TIMEOUT_S)[0].decode() for each in started]
    assert [each.returncode for each in started] == [0, 0], said


def check_trained(folder: Path, strategy: str) -> dict[str, Any]:
    """Both ranks have learned, each on a node of its own, and hold the same weights."""
    summary = check_ranks(folder, strategy)
    assert summary["test_accuracy"] > 0.7
    return summary


def check_ranks(folder: Path, strategy: str) -> dict[str, Any]:
    """Both ranks came to the end, each on a node of its own, and hold the same weights."""
    summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    assert (summary["strategy"], summary["world_size"]) == (strategy, 2)
    digests = summary["weights_sha256"]
    assert digests == [digests[0]] * 2
    require_two_records(folder)
    return summary


def check_weights(folder: Path, strategy: str) -> None:
    """Both ranks came to the end with the same weights, which are those of the data or on their way there."""
    files = sorted((folder / "run" / "outputs").glob("weights-?.json"))
    weights = [json.loads(path.read_text()) for path in files]
    assert weights == [weights[0]] * 2
    lowest, highest = {"horovod": (2.9, 3.1), "mwms": (0.4, 1.2)}[strategy]
    assert all(lowest < each < highest for each in weights[0]), weights
    require_two_records(folder)


def require_two_records(folder: Path) -> None:
    """Require what the launcher's own program writes of each rank."""
    ranks = sorted((folder / "run" / "ranks").glob("*.json"))
    assert len(ranks) == 2, ranks
