"""A no-op `pulumi up` of the local stack against one of a Python stack that declares nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.bench.pairs import Command, median_wall_s, time_in_turn
from tests.bench.table import Row
from tests.ports import free_port
from tools.local_stack import write_wrapper
from tools.project import Project

UP = ("up", "-s", "local", "--yes", "--skip-preview", "--non-interactive")
SETTINGS = """\
config:
  trainyard:engine: local
  trainyard:storage: {{port: {port}, folder: storage}}
  trainyard:workspace: {{folder: workspace}}
  trainyard:clusters:
    cpu: {{nodes: 2, processes_per_node: 2}}
"""


def up_rows(project: Path, rounds: int) -> list[Row]:
    """Bring both stacks up once, then time what a second `up` costs, in turn."""
    with tempfile.TemporaryDirectory() as name:
        ours = _local_stack(project, Path(name) / "ours")
        empty = _empty_stack(project, Path(name) / "empty")
        try:
            timings = time_in_turn([ours, empty], rounds=rounds)
        finally:
            subprocess.run(
                [ours.argv[0], "destroy", "-s", "local", "--yes", "--skip-preview"],
                cwd=ours.cwd,
                env={**os.environ, **ours.env},
                stdout=subprocess.DEVNULL,
                check=True,
            )
    ours_s, empty_s = median_wall_s(timings[ours.name]), median_wall_s(timings[empty.name])
    return [
        Row(
            goal="no-op `pulumi up -s local`",
            ours=f"{ours_s:.2f} s",
            peer=f"empty Python stack {empty_s:.2f} s",
            ratio=ours_s / empty_s,
            at_most=1.5,
        )
    ]


def _local_stack(project: Path, folder: Path) -> Command:
    for part in ("Pulumi.yaml", "infra/__main__.py", ".trainyard/tools.json"):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(project / part, folder / part)
    (folder / "Pulumi.local.yaml").write_text(SETTINGS.format(port=free_port()))
    return _brought_up("local stack", project, folder)


def _empty_stack(project: Path, folder: Path) -> Command:
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: empty\nruntime: python\n")
    (folder / "__main__.py").write_text('"""Declares nothing."""\n')
    return _brought_up("empty stack", project, folder)


def _brought_up(name: str, project: Path, folder: Path) -> Command:
    (folder / ".venv" / "bin").mkdir(parents=True)
    pulumi = Path(json.loads((project / ".trainyard/tools.json").read_text())["pulumi"]).parent
    wrapper = write_wrapper(Project(root=folder, cache=folder / "cache"), pulumi)
    # The wrapper puts the folder's own .venv first, which holds nothing else.
    env = {"PATH": f"{project / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = Command(name=name, argv=[str(wrapper), *UP], env=env, cwd=folder)
    for argv in ([str(wrapper), "stack", "init", "local", "--non-interactive"], command.argv):
        subprocess.run(
            argv, cwd=folder, env={**os.environ, **env}, stdout=subprocess.DEVNULL, check=True
        )
    return command
