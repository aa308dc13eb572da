"""Check whether this machine's GPUs can be used: the driver, and what each installed image needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from jobs.host.console import count_text
from jobs.host.gpus import DEVICES, count_gpus
from jobs.stacks.checks import Check, Health

DRIVER = Path("/proc/driver/nvidia/version")
# The oldest driver of each CUDA (docs.nvidia.com/deploy/cuda-compatibility, 2026-11-23).
OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}
_MOST_CHARACTERS = 1 << 16


def check_gpus(
    runtimes: Mapping[str, Path], *, devices: Path = DEVICES, driver: Path = DRIVER
) -> Iterator[Check]:
    """Check GPUs and the images in `runtimes` (folders by name); nothing where there is no GPU."""
    num_gpus = count_gpus(devices)
    if not num_gpus:
        return
    found = re.search(r"(\d+)\.\d+(?:\.\d+)?", _read(driver))
    gpus = count_text(num_gpus, "NVIDIA GPU")
    if found is None:
        mend = "install NVIDIA's driver, or hide the GPUs: CUDA_VISIBLE_DEVICES=-1"
        yield Check(part="gpus", health=Health.MISSING, found=f"{gpus}, no driver", mend=mend)
        return
    yield Check(part="gpus", health=Health.OK, found=f"{gpus}, driver {found[0]}")
    for name, root in runtimes.items():
        yield _check_runtime(name, root, int(found[1]))


def _check_runtime(name: str, root: Path, driver: int) -> Check:
    """Compare the CUDA that an image's packages were built for with the driver."""
    part = f"gpus of image {name}"
    packages = [each.name for each in root.glob("lib/python*/site-packages/nvidia_*.dist-info")]
    versions = {int(each[1]) for each in re.finditer(r"_cu(\d{2})-", " ".join(packages))}
    if not versions:
        found = "its packages have no CUDA: it trains on the CPU"
        return Check(part=part, health=Health.NOTE, found=found)
    cuda = max(versions)
    nccl = next((each for each in packages if each.startswith("nvidia_nccl")), "")
    told = f"CUDA {cuda}, NCCL {nccl.partition('-')[2].removesuffix('.dist-info') or 'none'}"
    oldest = OLDEST_DRIVERS.get(cuda)
    if oldest is not None and driver < oldest:
        found = f"{told}: needs driver {oldest} or newer"
        mend = "a newer driver, or an image with an older CUDA; --device cpu trains without"
        return Check(part=part, health=Health.NOTE, found=found, mend=mend)
    return Check(part=part, health=Health.OK, found=told)


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_CHARACTERS)
    except OSError:
        return ""
