"""Real podman for tests, with a storage of its own, and an image made of this machine's Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

IMAGE = "localhost/own/python:1"
# A sandbox may have both kinds of control groups at once, of which crun takes one.
_IN_ONE_HIERARCHY = """\
#!/bin/sh
exec unshare --mount --propagation private /bin/sh -c \
'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"' podman {program} "$@"
"""


@contextmanager
def podman_storage(
    monkeypatch: pytest.MonkeyPatch, *, volumes: Iterable[str] = ()
) -> Iterator[str]:
    """Let podman keep its images in a folder of the test's own; gives an image with Python.

    `volumes` are mounted into every container. Skips the test where podman runs no container. The
    folder's name is short: below one as long as pytest's, podman does not hear that a container has
    ended, and waits for 20 s (podman 4.3, Debian 12).
    """
    program = shutil.which("podman")
    if program is None:
        pytest.skip("podman is not installed (apt-get install podman)")
    if os.geteuid() != 0:
        pytest.skip("podman's containers are tried as root only: a storage of its own needs it")
    folder = Path(tempfile.mkdtemp(prefix="podman-"))
    (folder / "bin").mkdir()
    wrapper = folder / "bin" / "podman"
    wrapper.write_text(_IN_ONE_HIERARCHY.format(program=program))
    wrapper.chmod(0o755)
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    # More open files than a sandbox may allow is podman's default.
    (folder / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
        f"volumes = {json.dumps(list(volumes))}\n"
        '[engine]\ncgroup_manager = "cgroupfs"\n'
    )
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
    monkeypatch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
    try:
        lay_python(folder / "root")
        podman("import", "--quiet", _packed(folder / "root"), IMAGE)
        tried = podman("run", "--rm", "--network=host", IMAGE, "python3", "-c", "", check=False)
        if tried.returncode:
            pytest.skip(f"podman runs no container here: {tried.stderr.strip()[-300:]}")
        yield IMAGE
    finally:
        podman("rm", "--all", "--force", "--time=0", check=False)
        podman("rmi", "--all", "--force", check=False)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{folder}/"):
                subprocess.run(["umount", line.split()[1]], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def podman(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of podman."""
    return subprocess.run(
        ["podman", *arguments], capture_output=True, text=True, check=check, timeout=300
    )


def containers() -> list[str]:
    """Names of all containers, those that are over among them."""
    return podman("ps", "--all", "--format", "{{.Names}}").stdout.split()


def lay_python(root: Path) -> None:
    """Copy this machine's Python, a shell and the libraries that they load into a folder."""
    python = Path(os.path.realpath(Path(sys.base_prefix) / "bin" / "python3"))
    stdlib = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    # Most of its bytes, and nothing that a rank imports.
    heavy = ("config-3*", "ensurepip", "idlelib", "lib2to3", "test", "tkinter", "turtledemo")
    unwanted = shutil.ignore_patterns(*heavy, "__pycache__", "site-packages", "dist-packages")
    shutil.copytree(stdlib, root / stdlib.relative_to("/"), ignore=unwanted, symlinks=True)
    programs = [python, Path("/bin/sh"), Path("/bin/sleep")]
    for each in programs:
        _copy(each, root)
    loaded = {
        path for each in [*programs, *stdlib.glob("lib-dynload/*.so")] for path in _libs(each)
    }
    # What compiled packages load besides.
    (libraries,) = {each.parent for each in loaded if each.name == "libc.so.6"}
    names = ("libpthread.so.0", "librt.so.1", "libdl.so.2", "libutil.so.1")
    loaded |= {libraries / name for name in names if (libraries / name).exists()}
    for folder in (libraries, Path("/usr/lib") / libraries.name):
        if (folder / "libstdc++.so.6").exists():
            loaded |= {folder / "libstdc++.so.6", *_libs(folder / "libstdc++.so.6")}
    for each in loaded:
        _copy(each, root)
    for name in ("usr/bin", "tmp", "etc", "proc", "sys", "dev"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name in ("python3", "python"):
        (root / "usr" / "bin" / name).unlink(missing_ok=True)
        (root / "usr" / "bin" / name).symlink_to(python)


def _libs(program: Path) -> set[Path]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return {Path(each) for each in re.findall(r"(/\S+) \(0x", listed)}


def _copy(path: Path, root: Path) -> None:
    target = root / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(path, target)


def _packed(root: Path) -> Path:
    archive = root.with_suffix(".tar")
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    shutil.rmtree(root)
    return archive
