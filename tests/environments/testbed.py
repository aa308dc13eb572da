"""Installs what only tests need, where that is possible: `python3 -m tests.environments.testbed`.

Debian packages, the programs of a container registry and of an ssh server, and the runtimes that set-up
does not make. Never a reason to fail: a test whose tool is missing says so; it is skipped, and fails
in CI.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.host.cache import run_logged
from jobs.images.runtimes import OF_SET_UP, build_runtime, describe, list_images
from tools.phases import Phases
from tools.project import Project, this_project

# Program a test runs -> the Debian package that has it.
PACKAGES = {
    "buildah": "buildah",
    "chromium": "chromium",
    "debootstrap": "debootstrap",
    "fish": "fish",
    "ip": "iproute2",
    "mount": "mount",
    "podman": "podman",
    "strace": "strace",
    "unshare": "util-linux",
    "zsh": "zsh",
}
# Their installation would start services that listen on every address, so they are only unpacked:
# packages, and the program that they are unpacked for.
SERVERS = {
    ("docker-registry",): "usr/bin/docker-registry",
    ("openssh-server", "libwrap0"): "usr/sbin/sshd",
}


def main() -> int:
    """Install what is missing, saying so; always exits 0."""
    project = this_project(os.environ)
    with Phases(sys.stdout, environ=os.environ) as phases:
        lay_packages(project, phases)
        lay_servers(project, phases)
        lay_runtimes(project, phases)
    return 0


def lay_packages(project: Project, phases: Phases) -> None:
    """Install the missing packages, as root on Debian."""
    missing = missing_packages()
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0 or not is_debian():
        phases.say(f"some tests will be skipped for want of: {names} (apt-get install {names})")
        return
    phases.say(f"as root on Debian: apt-get install {names}, which only tests need")
    try:
        with phases.phase("packages that only tests need"):
            install(project, missing)
    except LaunchError as error:
        phases.say(f"{error.message}\nthe tests that need them will be skipped")


def missing_packages() -> list[str]:
    return sorted(package for program, package in PACKAGES.items() if shutil.which(program) is None)


def is_debian() -> bool:
    return Path("/etc/debian_version").exists()


def install(project: Project, packages: list[str]) -> None:
    log = project.log("testbed")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages],
    ):
        run_logged(command, what=" ".join(command[:2]), log=log, env=env)


def lay_servers(project: Project, phases: Phases) -> None:
    """Unpack the servers that tests push images to, and start ranks over."""
    folder = project.state / "testbed"
    for packages, program in SERVERS.items():
        if is_debian() and not (folder / program).exists():
            name = Path(program).name
            try:
                with phases.phase(f"{name}, which only tests need"):
                    unpack(project, packages, folder)
            except LaunchError as error:
                phases.say(f"{error.message}\nthe tests that need {name} will be skipped")


def unpack(project: Project, packages: Sequence[str], folder: Path) -> None:
    """Fetch packages and lay their files into a folder, without installing them."""
    archives = project.state / "testbed.archives"
    shutil.rmtree(archives, ignore_errors=True)
    archives.mkdir(parents=True)
    log = project.log("testbed-servers")
    # apt's own user may not enter the folder.
    options = ("-q", "-o", "APT::Sandbox::User=root")
    try:
        download = ["apt-get", "download", *options, *packages]
        run_logged(download, what="apt-get", log=log, cwd=archives)
        for archive in archives.glob("*.deb"):
            run_logged(["dpkg-deb", "-x", archive, folder], what="dpkg-deb", log=log)
    finally:
        shutil.rmtree(archives, ignore_errors=True)


def lay_runtimes(project: Project, phases: Phases) -> None:
    """Build the runtimes that neither set-up nor the demo needs; 3 GB and minutes the first time."""
    for image in list_images(project.root):
        if image in OF_SET_UP or describe(image, project.root)["built"]:
            continue
        phases.say(f"the {image} runtime, which neither set-up nor the demo needs (a few minutes)")
        try:
            build_runtime(image, project.root, report=phases.phase)
        except LaunchError as error:
            phases.say(f"{error.message}\nthe tests that need it will be skipped")


if __name__ == "__main__":
    sys.exit(main())
