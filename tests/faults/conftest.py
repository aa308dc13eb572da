"""Fixtures of the fault tests: a workspace of its own for each, and nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.gangs import Gangs
from tests.faults.torch_campaign import make_pictures
from tests.faults.transfer_campaign import FlakyStore, flaky_store
from tests.mounts import mount_tmpfs, unmount

MEMORY_CONTROLLER = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 256 << 20


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[Gangs]:
    """A local engine on one cluster of one node with four processes."""
    made = Gangs(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few pictures in MNIST's format."""
    return make_pictures(tmp_path_factory.mktemp("data") / "pictures")


@pytest.fixture(scope="session")
def flaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlakyStore]:
    """One for all tests of a process: each names its datasets differently."""
    with flaky_store(tmp_path_factory.mktemp("store")) as made:
        yield made


@pytest.fixture
def store(flaky: FlakyStore) -> FlakyStore:
    """A store behind a proxy that lets everything pass."""
    flaky.proxy.clear()
    return flaky


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of DISK_BYTES of the test's module; needs root."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount_tmpfs(folder, f"size={request.module.DISK_BYTES}")
    yield folder
    unmount(folder)


@pytest.fixture
def memory_group(tmp_path: Path) -> Iterator[Path]:
    """A control group (v1 or v2) with a memory limit; needs root."""
    if os.geteuid() != 0:
        pytest.skip("a memory control group needs root")
    is_v1 = (MEMORY_CONTROLLER / "memory.limit_in_bytes").exists()
    root = MEMORY_CONTROLLER if is_v1 else Path("/sys/fs/cgroup")
    group = root / f"trainyard-test-{tmp_path.name}-{os.getpid()}"
    try:
        group.mkdir()
        limit = group / ("memory.limit_in_bytes" if is_v1 else "memory.max")
        limit.write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no memory control group to be had here: {error}")
    yield group
    group.rmdir()
