"""Jobs that were written for Batch AI run here unchanged: imported, planned, run on the local stack."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests import needs
from tests.fakes.gangs import make_cluster
from tests.fakes.launched_store import Store
from tests.fakes.typed_launch import launch

SCHEMA = "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01/job.json"


@pytest.fixture
def two_nodes(store: Store) -> Store:
    """A local stack with two nodes of two processes."""
    clusters = {"cpu": make_cluster(nodes=2, processes=2)}
    environment = msgspec.structs.replace(store.environment, clusters=clusters)
    file = store.folder / "two-nodes.json"
    file.write_bytes(msgspec.json.encode(environment))
    return replace(store, environment=environment, env_file=file)


def import_job(folder: Path, document: dict[str, object], *words: str) -> None:
    (folder / "job.json").write_text(json.dumps({"$schema": SCHEMA, "properties": document}))
    done = launch(folder, "import", "job.json", "--code", "scripts", "--into", "made", *words)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def run(folder: Path, store: Store, job: str = "made/job.yaml") -> tuple[str, list[str]]:
    done = launch(folder, "run", job, "-y", "--env", str(store.env_file))
    assert done.returncode == 0, done.stdout + done.stderr
    name, *lines = done.stdout.splitlines()
    return name, lines


def stub_programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put in apt's place a program that does nothing: a preparation is none of this machine's business."""
    folder.mkdir()
    for name in ("apt", "apt-get"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")


# Asserts each variable of Batch AI, and that what it writes into mounts comes back.
PROBE = """
import json, os, sys
env = os.environ
rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
root, cluster = env["AZ_BATCHAI_JOB_MOUNT_ROOT"], env["AZ_BATCHAI_MOUNT_ROOT"]
assert sys.argv[0] == root + "/scripts/deep/probe.py", sys.argv
assert sys.argv[1:] == ["-x", "1", "a b", "rest", root + "/data/in"], sys.argv
assert open(root + "/data/in/word.txt").read() == "hello"
assert open(env["AZ_BATCHAI_INPUT_DATA"] + "/word.txt").read() == "hello"
assert int(env["AZ_BATCHAI_NUM_GPUS"]) >= 0
assert env["AZ_BATCHAI_TASK_INDEX"] == str(rank)
assert env["AZ_BATCHAI_PYTORCH_BACKEND"] == "gloo"
assert env["AZ_BATCHAI_PYTORCH_INIT_METHOD"].startswith("tcp://")
assert env["AZ_BATCHAI_PS_HOSTS"] == env["AZ_BATCHAI_WORKER_HOSTS"] == ""
assert env["AZ_BATCHAI_MPI_MASTER_NODE"] and os.path.isfile(env["AZ_BATCHAI_MPI_HOST_FILE"])
for name in ("JOB_TEMP", "JOB_TEMP_DIR", "SHARED_JOB_TEMP", "STDOUTERR_DIR", "OUTPUT_MODEL"):
    assert os.path.isdir(env["AZ_BATCHAI_" + name]), name
assert env["PLAIN"] == "it's $5" and env["FOLDER"] == env["AZ_BATCHAI_OUTPUT_MODEL"] + "/sub"
assert open(env["AZ_BATCHAI_JOB_TEMP"] + "/prepared").read() == "from preparation\\n"
assert "LOST" not in env
import helper
for place, text in ((root + "/data/new", "one"), (env["AZ_BATCHAI_OUTPUT_MODEL"], "two")):
    os.makedirs(place, exist_ok=True)
    open(f"{place}/rank-{rank}", "w").write(text)
print("probed", rank, size)
"""
PROBE_JOB = {
    "jobPreparation": {
        "commandLine": "export LOST=1; echo from preparation > $AZ_BATCHAI_JOB_TEMP/prepared"
    },
    "inputDirectories": [{"id": "DATA", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/data/in"}],
    "outputDirectories": [
        {"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs", "pathSuffix": "Models"}
    ],
    "environmentVariables": [
        {"name": "PLAIN", "value": "it's $5"},
        {"name": "FOLDER", "value": "$AZ_BATCHAI_OUTPUT_MODEL/sub"},
    ],
    "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs",
    "mountVolumes": {
        "azureFileShares": [
            {
                "azureFileUrl": "https://a.file.core.windows.net/scripts",
                "relativeMountPath": "scripts",
            },
            {"azureFileUrl": "https://a.file.core.windows.net/logs", "relativeMountPath": "logs"},
        ],
        "azureBlobFileSystems": [
            {"accountName": "a", "containerName": "data", "relativeMountPath": "data"}
        ],
    },
}
SCRIPT = "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/deep/probe.py"
ARGUMENTS = "-x 1 'a b' rest $AZ_BATCHAI_JOB_MOUNT_ROOT/data/in"


@pytest.mark.parametrize(
    ("settings", "nodes"),
    [
        ({"pyTorchSettings": {"pythonScriptFilePath": SCRIPT, "commandLineArgs": ARGUMENTS}}, 2),
        (
            {
                "customToolkitSettings": {
                    "commandLine": "mpirun -np 2 --hostfile $AZ_BATCHAI_MPI_HOST_FILE "
                    f"python {SCRIPT} {ARGUMENTS}"
                }
            },
            2,
        ),
    ],
    ids=["pytorch", "unwrapped"],
)
def test_a_script_finds_every_variable_of_batch_ai(
    two_nodes: Store, tmp_path: Path, settings: dict[str, object], nodes: int
) -> None:
    needs.runtime("pytorch")
    scripts = tmp_path / "scripts" / "deep"
    scripts.mkdir(parents=True)
    (scripts / "probe.py").write_text(PROBE)
    (scripts / "helper.py").write_text("")
    import_job(tmp_path, {"nodeCount": nodes, **settings, **PROBE_JOB})
    (tmp_path / "made" / "data" / "data" / "in").mkdir()
    (tmp_path / "made" / "data" / "data" / "in" / "word.txt").write_text("hello")
    name, lines = run(tmp_path, two_nodes)
    assert sorted(line for line in lines if "probed" in line) == [
        f"[{rank}] probed {rank} {nodes}" for rank in range(nodes)
    ]
    outputs = two_nodes.folder / "workspace" / "runs" / name / "outputs"
    for rank in range(nodes):
        assert (outputs / "data" / "new" / f"rank-{rank}").read_text() == "one"
        assert (outputs / "MODEL" / f"rank-{rank}").read_text() == "two"


RECIPES = Path(__file__).parents[1] / "jobs" / "launching" / "imports" / "batchai_recipes"
# Recipe: its image here, the folder's script, and the number of its processes.
LIVE = {
    "Distributed-Batch-Scoring-in-Tensorflow-with-GPU": ("tensorflow", "batch_image_label.py", 2),
    "Horovod-Infiniband-Benchmark": ("tensorflow", "jobprep_benchmark.sh", 8),
    "Horovod-PyTorch": ("pytorch", "pytorch_mnist.py", 2),
    "Horovod-Tensorflow": ("tensorflow", "tensorflow_mnist.py", 2),
    "Keras-GPU-job_tensorflow": ("tensorflow", "mnist_cnn.py", 1),
    "PyTorch-GPU-Distributed-Gloo": ("pytorch", "mnist_trainer.py", 2),
    "TensorFlow-GPU": ("tensorflow", "convolutional.py", 1),
    "TensorFlow-GPU-Distributed": ("tensorflow", "mnist_replica.py", 3),
}
ONE_A_LAUNCHER = {
    "Horovod-PyTorch",
    "Keras-GPU-job_tensorflow",
    "PyTorch-GPU-Distributed-Gloo",
    "TensorFlow-GPU-Distributed",
}
# Whoever serves others in TensorFlow waits until it is ended, as a parameter server does. Its workers wait
# for its line: it is ended with the last of them.
RECIPE_PROBE = """
import json, os, sys, time
env = os.environ
known = {name: value for name, value in env.items() if name.startswith("AZ_BATCHAI_")}
assert not [word for word in sys.argv if "AZ_BATCHAI" in word], sys.argv
for name in ("MOUNT_ROOT", "JOB_MOUNT_ROOT", "JOB_TEMP", "JOB_TEMP_DIR", "SHARED_JOB_TEMP", "STDOUTERR_DIR"):
    assert os.path.isdir(known["AZ_BATCHAI_" + name]), name
for name, value in known.items():
    assert not name.startswith("AZ_BATCHAI_OUTPUT_") or os.path.isdir(value), name
    assert not name.startswith("AZ_BATCHAI_INPUT_") or "/.batchai/job/" in value, name
task = json.loads(env.get("TF_CONFIG", '{"cluster": {}, "task": {"type": "", "index": 0}}'))
hosts = {name: ",".join(task["cluster"].get(name, [])) for name in ("ps", "worker")}
assert known["AZ_BATCHAI_PS_HOSTS"] == hosts["ps"] and known["AZ_BATCHAI_WORKER_HOSTS"] == hosts["worker"]
index = task["task"]["index"] if hosts["worker"] else int(env["RANK"])
assert int(known["AZ_BATCHAI_TASK_INDEX"]) == index
assert int(known["AZ_BATCHAI_NUM_GPUS"]) >= 0
role = [word for word in sys.argv if word.startswith("--job_name=")]
assert role == ([f"--job_name={task['task']['type']}"] if hosts["worker"] else []), sys.argv
print("probed", sorted(name for name in known if name.startswith(("AZ_BATCHAI_INPUT_", "AZ_BATCHAI_OUTPUT_"))), flush=True)
has_probed = os.path.join(known["AZ_BATCHAI_SHARED_JOB_TEMP"], "server-has-probed")
if task["task"]["type"] == "ps":
    open(has_probed, "w").close()
    time.sleep(600)
while hosts["ps"] and not os.path.exists(has_probed):
    time.sleep(0.05)
"""
PREPARATION = """\
mkdir -p $AZ_BATCHAI_JOB_TEMP/benchmarks/scripts/tf_cnn_benchmarks
cp probe.py $AZ_BATCHAI_JOB_TEMP/benchmarks/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py
"""


@pytest.mark.parametrize(
    "recipe",
    [
        recipe if recipe in ONE_A_LAUNCHER else pytest.param(recipe, marks=pytest.mark.faults)
        for recipe in LIVE
    ],
)
def test_recipes_run_with_all_variables(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    image, script, processes = LIVE[recipe]
    needs.runtime(image)
    environment = msgspec.structs.replace(
        store.environment, clusters={"cpu": make_cluster(nodes=2, processes=4)}
    )
    file = tmp_path / "environment.json"
    file.write_bytes(msgspec.json.encode(environment))
    stub_programs(tmp_path / "bin", monkeypatch)
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "probe.py").write_text(RECIPE_PROBE)
    (scripts / script).write_text(PREPARATION if script.endswith(".sh") else RECIPE_PROBE)
    document = json.loads((RECIPES / f"{recipe}.json").read_text())
    import_job(tmp_path, document["properties"])
    _, lines = run(tmp_path, replace(store, env_file=file))
    assert len([line for line in lines if "probed" in line]) == processes, lines
