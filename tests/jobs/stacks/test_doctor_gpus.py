"""The doctor on a machine with GPUs: the driver, and the images that it is too old for."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.stacks.checks import Check, Health
from jobs.stacks.doctor_gpus import check_gpus

VERSION = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Sep 30\n"
    "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
)


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (folder / name).touch()
    return folder


def runtime(folder: Path, *packages: str) -> Path:
    for each in packages:
        (folder / "lib" / "python3.11" / "site-packages" / f"{each}.dist-info").mkdir(parents=True)
    return folder


def driver(folder: Path, version: str) -> Path:
    path = folder / "version"
    path.write_text(VERSION.format(version))
    return path


def test_a_machine_without_gpus_is_not_told_of_them(tmp_path):
    assert list(check_gpus({"pytorch": tmp_path}, devices=tmp_path, driver=tmp_path / "none")) == []


def test_gpus_without_a_driver_are_missing_one(tmp_path, devices):
    (check,) = check_gpus({"pytorch": tmp_path}, devices=devices, driver=tmp_path / "none")
    assert (check.health, check.found) == (Health.MISSING, "2 NVIDIA GPUs, no driver")


def test_each_image_is_told_its_cuda_and_nccl(tmp_path, devices):
    torch = runtime(tmp_path / "torch", "nvidia_nccl_cu13-2.30.7", "torch-2.15.0")
    told = driver(tmp_path, "580.65.06")
    assert list(check_gpus({"pytorch": torch}, devices=devices, driver=told)) == [
        Check(part="gpus", health=Health.OK, found="2 NVIDIA GPUs, driver 580.65.06"),
        Check(part="gpus of image pytorch", health=Health.OK, found="CUDA 13, NCCL 2.30.7"),
    ]


def test_an_image_that_is_too_new_for_the_driver_names_the_one_it_needs(tmp_path, devices):
    torch = runtime(tmp_path / "torch", "nvidia_nccl_cu13-2.30.7")
    old = runtime(tmp_path / "old", "nvidia_cublas_cu12-12.1")
    plain = runtime(tmp_path / "plain", "tensorflow-2.18")
    told = driver(tmp_path, "535.183.01")
    images = {"pytorch": torch, "old": old, "plain": plain}
    _, *checks = check_gpus(images, devices=devices, driver=told)
    assert [(each.health, each.found) for each in checks] == [
        (Health.NOTE, "CUDA 13, NCCL 2.30.7: needs driver 580 or newer"),
        (Health.OK, "CUDA 12, NCCL none"),
        (Health.NOTE, "its packages have no CUDA: it trains on the CPU"),
    ]
