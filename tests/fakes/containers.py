"""Real buildah and a real registry for tests, each with a storage of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.busy import Bound
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
START_S = 30


@contextmanager
def buildah_storage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let buildah keep its images in a folder of the test's own, and empty that at the end.

    As root without a container runtime: in a chroot. Skips the test where that cannot be.
    """
    program = shutil.which("buildah")
    if program is None:
        pytest.skip("buildah is not installed (apt-get install buildah)")
    if os.geteuid() != 0:
        pytest.skip("buildah's chroot isolation is tried as root only")
    folder.mkdir(parents=True, exist_ok=True)
    # Not with docker or podman, which may be there and would need what a test cannot give.
    (folder / "bin").mkdir()
    (folder / "bin" / "buildah").symlink_to(program)
    storage = folder / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    # More open files than a sandbox may allow is buildah's default.
    containers = folder / "containers.conf"
    containers.write_text('[containers]\ndefault_ulimits = ["nofile=20000:20000"]\n')
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
    monkeypatch.setenv("CONTAINERS_CONF", str(containers))
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    tried = subprocess.run(["buildah", "images"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"buildah cannot keep images here: {tried.stderr.strip()}")
    try:
        yield
    finally:
        buildah("rm", "--all", check=False)
        buildah("rmi", "--all", "--force", check=False)
        unmount_below(folder)
        shutil.rmtree(folder)


def buildah(*arguments: str | Path, check: bool = True) -> str:
    """What a command of buildah prints."""
    answer = subprocess.run(["buildah", *arguments], stdout=subprocess.PIPE, text=True, check=check)
    return answer.stdout.strip()


def unmount_below(folder: Path) -> None:
    """Unmount what buildah left mounted."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    for point in reversed([line.split()[1] for line in mounts]):
        if point.startswith(f"{folder}/"):
            subprocess.run(["umount", point], check=False)


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Debian's docker-registry on loopback; gives HOST:PORT. Skips the test without it."""
    unpacked = ROOT / ".trainyard" / "testbed" / "usr" / "bin" / "docker-registry"
    program = shutil.which("docker-registry") or (str(unpacked) if unpacked.exists() else None)
    if program is None:
        pytest.skip("docker-registry is not there (python3 -m tests.environments.testbed)")
    host = f"127.0.0.1:{free_port()}"
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "registry.yml"
    settings.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
        f"http: {{addr: '{host}'}}\nlog: {{level: warn}}\n"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", settings], stdout=log, stderr=log)
        try:
            _wait_for(host, process, folder / "log")
            yield host
        finally:
            process.terminate()
            process.wait()


def _wait_for(host: str, process: subprocess.Popen[bytes], log: Path) -> None:
    bound = Bound(START_S)
    while True:
        bound.check(log.read_text)
        assert process.poll() is None, log.read_text()
        try:
            with urlopen(f"http://{host}/v2/") as answer:
                assert answer.status == 200
                return
        except URLError:
            time.sleep(0.05)
