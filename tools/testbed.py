"""Installs what only tests need, where that is possible: `python3 -m tools.testbed`.

Never a reason to fail: a test whose tool is missing says so and is skipped.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from jobs.build_cache import run_logged
from jobs.errors import LaunchError
from tools.phases import Phases
from tools.project import Project, this_project

# Program a test runs -> the Debian package that has it.
PACKAGES = {"ip": "iproute2", "mount": "mount", "unshare": "util-linux"}


def main() -> int:
    """Install the missing packages as root on Debian, after saying so; always exits 0."""
    missing = missing_packages()
    if not missing:
        return 0
    with Phases(sys.stdout, environ=os.environ) as phases:
        names = " ".join(missing)
        if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
            phases.say(f"some tests will be skipped for want of: {names} (apt-get install {names})")
            return 0
        phases.say(f"as root on Debian: apt-get install {names}, which only tests need")
        try:
            with phases.phase("packages that only tests need"):
                install(this_project(os.environ), missing)
        except LaunchError as error:
            phases.say(f"{error.message}\nthe tests that need them will be skipped")
    return 0


def missing_packages() -> list[str]:
    return sorted(package for program, package in PACKAGES.items() if shutil.which(program) is None)


def install(project: Project, packages: list[str]) -> None:
    log = project.log("testbed")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages],
    ):
        run_logged(command, what=" ".join(command[:2]), log=log, env=env)


if __name__ == "__main__":
    sys.exit(main())
