"""A copy of what Pulumi reads in a folder of its own, with its own state: real engine, own stack."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tools import gate
from tools.local_stack import write_wrapper
from tools.project import Project

REPO = Path(__file__).parents[1]
TOOLS = ".trainyard/tools.json"


@dataclass
class PulumiProject:
    """One stack of a copied project; `settings` become the `trainyard:` keys of its file."""

    root: Path
    stack: str
    settings: dict[str, Any] = field(default_factory=dict)
    # Added to what the test itself was started with; the policy has tests of its own.
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def settings_file(self) -> Path:
        return self.root / f"Pulumi.{self.stack}.yaml"

    @property
    def state_file(self) -> Path:
        return self.root / f".trainyard/state/.pulumi/stacks/trainyard/{self.stack}.json"

    @property
    def environment_variables(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PULUMI_", "TRAINYARD_"))}
        # As a person's from the second command on: the SDKs are read from bytecode.
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        # The wrapper puts the project's own .venv first, as in a real clone; this one holds
        # nothing but the wrapper, so the interpreter must come next.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return kept | {"PATH": path, gate.SKIP: self.stack} | self.variables

    def lay(self) -> None:
        """Copy the project, write the wrapper and make the empty stack."""
        self.lay_files()
        self.write_settings()
        self.pulumi("stack", "init", self.stack)

    def lay_files(self) -> None:
        """Copy the project and write the wrapper."""
        tools = REPO / TOOLS
        assert tools.exists(), "`make setup` installs Pulumi, which these tests run"
        for name in ("Pulumi.yaml", "infra/__main__.py", TOOLS):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, self.root / name)
        # As in a clone: what the runtimes of this machine are known by.
        shutil.copytree(REPO / "images", self.root / "images")
        (self.root / ".venv" / "bin").mkdir(parents=True)
        pulumi = Path(json.loads(tools.read_text())["pulumi"]).parent
        write_wrapper(Project(root=self.root, cache=self.root / "cache"), pulumi)

    def write_settings(self) -> None:
        """Write the settings; what Pulumi itself keeps in the file (its salt) stays."""
        known = (
            yaml.safe_load(self.settings_file.read_text()) if self.settings_file.exists() else {}
        )
        config: dict[str, Any] = {f"trainyard:{k}": v for k, v in self.settings.items()}
        self.settings_file.write_text(yaml.safe_dump({**known, "config": config}))

    def pulumi_command(self, *arguments: str) -> list[str]:
        return [str(self.root / ".venv/bin/pulumi"), *arguments, "--non-interactive"]

    def pulumi(
        self, *arguments: str, check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.pulumi_command(*arguments),
            cwd=self.root,
            env=self.environment_variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **options,
        )
        assert not check or done.returncode == 0, done.stdout
        return done

    def up(self, *arguments: str, check: bool = True) -> str:
        self.write_settings()
        options = ["-s", self.stack, "--yes", "--skip-preview", "--suppress-outputs"]
        return self.pulumi("up", *options, *arguments, check=check).stdout

    def destroy(self, *, check: bool = True) -> str:
        options = ["-s", self.stack, "--yes", "--skip-preview"]
        return self.pulumi("destroy", *options, check=check).stdout

    def refresh(self) -> str:
        return self.pulumi("refresh", "-s", self.stack, "--yes", "--skip-preview").stdout

    def launch(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "jobs.cli", *arguments],
            cwd=self.root,
            env=self.environment_variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def resources(self) -> dict[str, dict[str, Any]]:
        """The stack's resources in Pulumi's record, by name."""
        checkpoint = json.loads(self.state_file.read_text())["checkpoint"]["latest"]
        assert not checkpoint.get("pending_operations"), checkpoint["pending_operations"]
        return {each["urn"].rpartition("::")[2]: each for each in checkpoint.get("resources", [])}

    def plugins(self) -> list[int]:
        """Processes of Pulumi's that run for this project."""
        home = f"PULUMI_HOME={self.root}/.trainyard/pulumi-home".encode()
        return [
            pid
            for pid, argv in read_command_lines().items()
            if any(b"pulumi" in word for word in argv) and home in read_variables(pid)
        ]


def read_command_lines() -> dict[int, list[bytes]]:
    """The words of every process's command line."""
    found: dict[int, list[bytes]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found[int(entry.name)] = (entry / "cmdline").read_bytes().split(b"\0")
    return found


def read_variables(pid: int) -> list[bytes]:
    """The environment of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
