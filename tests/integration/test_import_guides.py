"""The job files of two guides to Batch AI end in trained models: MNIST on two ranks, ants and bees."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests import needs
from tests.fakes.launched_store import Store
from tests.integration.test_import import import_job, run, stub_programs
from tests.integration.test_import import two_nodes as two

two_nodes = two
SHARES = "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net"
# The guides' own scripts lie elsewhere and bring their data from the internet; these take the same arguments.
MNIST_JOB = {
    "nodeCount": 2,
    "pyTorchSettings": {
        "pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/pytorch/mnist_trainer.py",
        "commandLineArgs": "--epochs 10 --world-size 2 --dist-backend gloo "
        "--dist-url $AZ_BATCHAI_PYTORCH_INIT_METHOD --rank $AZ_BATCHAI_TASK_INDEX",
        "communicationBackend": "gloo",
    },
    "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs",
    "mountVolumes": {
        "azureFileShares": [
            {"azureFileUrl": f"{SHARES}/{name}", "relativeMountPath": name}
            for name in ("logs", "scripts")
        ]
    },
    "jobPreparation": {
        "commandLine": "apt update; apt install mpi-default-dev mpi-default-bin -y; pip install horovod"
    },
    "containerSettings": {"imageSourceRegistry": {"image": "pytorch/pytorch:0.4_cuda9_cudnn7"}},
}
MNIST_TRAINER = """
import argparse, os, sys
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
for name in ("epochs", "world-size", "rank"):
    parser.add_argument(f"--{name}", type=int)
for name in ("dist-backend", "dist-url"):
    parser.add_argument(f"--{name}")
args = parser.parse_args()
size, rank = args.world_size, args.rank
dist.init_process_group(args.dist_backend, init_method=args.dist_url, world_size=size, rank=rank)
torch.manual_seed(0)
shapes = torch.rand(10, 784)
torch.manual_seed(rank)
digits = torch.randint(10, (512,))
pictures = shapes[digits] + 0.1 * torch.rand(512, 784)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(784, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for epoch in range(args.epochs):
    loss = torch.nn.functional.cross_entropy(model(pictures), digits)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(float(loss))
    print("epoch", epoch + 1, "loss", losses[-1])
assert losses[-1] < losses[0]
if rank == 0:
    folder = os.environ["AZ_BATCHAI_JOB_MOUNT_ROOT"] + "/logs"
    torch.save(model.module.state_dict(), folder + "/mnist.pt")
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # torch 2.9 over Gloo aborts now and then while the interpreter ends
"""
ANTS_JOB = {
    "nodeCount": 1,
    "pyTorchSettings": {
        "pythonScriptFilePath": "$AZ_BATCHAI_MOUNT_ROOT/logs/scripts/pytorch/PyTorchTransferLearning.py",
        "commandLineArgs": "--input_dir $AZ_BATCHAI_MOUNT_ROOT/datalake/hymenoptera_data --epochs 25 "
        "--output_dir $AZ_BATCHAI_MOUNT_ROOT/datalake/models",
    },
    "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/logs",
    "containerSettings": {
        "imageSourceRegistry": {"image": "batchaitraining/pytorch:0.4.0-cp36-cuda9-cudnn7"}
    },
}
ANTS_TRAINER = """
import argparse
import torch
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("--input_dir")
parser.add_argument("--output_dir")
parser.add_argument("--epochs", type=int)
args = parser.parse_args()
pictures = datasets.ImageFolder(args.input_dir + "/train", transforms.ToTensor())
assert pictures.classes == ["ants", "bees"]
loader = torch.utils.data.DataLoader(pictures, batch_size=4, shuffle=True)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(args.epochs):
    for batch, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()
right = sum(int((model(batch).argmax(1) == labels).sum()) for batch, labels in loader)
assert right == len(pictures), right
torch.save(model.state_dict(), args.output_dir + "/ants_and_bees.pt")
"""


@pytest.mark.faults
def test_the_guide_to_mnist_ends_in_a_trained_model(
    two_nodes: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.runtime("pytorch")
    stub_programs(tmp_path / "bin", monkeypatch)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "mnist_trainer.py").write_text(MNIST_TRAINER)
    import_job(tmp_path, MNIST_JOB)
    name, lines = run(tmp_path, two_nodes)
    assert len([line for line in lines if "epoch 10 loss" in line]) == 2, lines
    outputs = two_nodes.folder / "workspace" / "runs" / name / "outputs"
    assert (outputs / "logs" / "mnist.pt").stat().st_size > 10 * 784 * 4


@pytest.mark.faults
def test_the_guide_to_ants_and_bees_ends_in_a_trained_model(
    two_nodes: Store, tmp_path: Path
) -> None:
    needs.runtime("pytorch")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "PyTorchTransferLearning.py").write_text(ANTS_TRAINER)
    import_job(tmp_path, ANTS_JOB)
    data = tmp_path / "made" / "data" / "datalake" / "hymenoptera_data" / "train"
    for kind, shade in (("ants", 20), ("bees", 220)):
        (data / kind).mkdir(parents=True)
        for number in range(4):
            picture = Image.new("RGB", (8, 8), (shade + number, shade, shade))
            picture.save(data / kind / f"{number}.png")
    name, _ = run(tmp_path, two_nodes)
    outputs = two_nodes.folder / "workspace" / "runs" / name / "outputs"
    model = outputs / "datalake" / "models" / "ants_and_bees.pt"
    assert model.stat().st_size > 2 * 3 * 8 * 8 * 4
