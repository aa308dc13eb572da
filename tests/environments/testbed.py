"""Installs what only tests need, where that is possible: `python3 -m tests.environments.testbed`.

Debian packages, a container registry's program, and the runtimes that set-up does not make. Never
a reason to fail: a test whose tool is missing says so and is skipped.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.host.cache import run_logged
from jobs.images.runtimes import OF_SET_UP, build_runtime, describe, list_images
from tools.phases import Phases
from tools.project import Project, this_project

# Program a test runs -> the Debian package that has it.
PACKAGES = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "mount": "mount",
    "podman": "podman",
    "strace": "strace",
    "unshare": "util-linux",
}
# Its installation would start a service that listens on every address, so it is only unpacked.
REGISTRY = "docker-registry"


def main() -> int:
    """Install what is missing, saying so; always exits 0."""
    project = this_project(os.environ)
    with Phases(sys.stdout, environ=os.environ) as phases:
        lay_packages(project, phases)
        lay_registry(project, phases)
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


def lay_registry(project: Project, phases: Phases) -> None:
    """Unpack the registry that images are pushed to in a test."""
    folder = project.state / "testbed"
    if not is_debian() or shutil.which(REGISTRY) or (folder / "usr" / "bin" / REGISTRY).exists():
        return
    archives = project.state / "testbed.archives"
    shutil.rmtree(archives, ignore_errors=True)
    archives.mkdir(parents=True)
    log = project.log("testbed-registry")
    try:
        with phases.phase("the registry that only a test needs"):
            run_logged(
                [
                    *("apt-get", "download", "-q", REGISTRY),
                    # apt's own user may not enter the folder.
                    *("-o", "APT::Sandbox::User=root"),
                ],
                what="apt-get",
                log=log,
                cwd=archives,
            )
            (archive,) = archives.glob("*.deb")
            run_logged(["dpkg-deb", "-x", archive, folder], what="dpkg-deb", log=log)
    except LaunchError as error:
        phases.say(f"{error.message}\nthe test that needs it will be skipped")
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
