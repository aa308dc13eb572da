"""Previews a cloud stack without an account: real engine and SDK, stand-in for Azure."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from jobs.contracts.errors import EnvironmentFailure
from tests.fakes import azure_native
from tests.fakes.azure_native import existing
from tools.project import Project

COPIED = ("Pulumi.yaml", "infra/__main__.py")
TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class Preview:
    """Resources as the engine would have them, the stack's own with its outputs."""

    resources: tuple[Mapping[str, Any], ...]


def preview(project: Project, stack: str, folder: Path) -> Preview:
    """Preview `up` of a new stack from the project's Pulumi.STACK.yaml.

    `folder`, empty, holds a copy of what Pulumi reads, the state and the stand-in's subscription.
    Raises EnvironmentFailure with what the engine said.
    """
    settings = _copy_project(project, stack, folder)
    azure_native.install(folder / "plugin", python=sys.executable, judging=False)
    (folder / "azure").mkdir()
    existing.put_settings(folder / "azure", settings.get("trainyard:existing", {}))
    (folder / "state").mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PULUMI_", "TRAINYARD_"))}
    env = {
        **kept,
        "PATH": f"{folder / 'plugin'}{os.pathsep}{os.environ['PATH']}",
        "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "",
        # Lets the engine write its events down: the stack's outputs are in no other place.
        "PULUMI_DEBUG_COMMANDS": "true",
        azure_native.FOLDER: str(folder / "azure"),
    }
    events = folder / "events.jsonl"
    pulumi = str(project.venv / "bin" / "pulumi")
    _run([pulumi, "stack", "init", stack, "--non-interactive"], folder, env)
    options = ["--json", "--show-sames", "--non-interactive", "--event-log", str(events)]
    said = _run([pulumi, "preview", "-s", stack, *options], folder, env)
    # A warning may stand before the object.
    steps = json.loads(said[said.index("{") :])["steps"]
    outputs = _stack_outputs(events)
    return Preview(
        resources=tuple(
            state if state["urn"] not in outputs else {**state, "outputs": outputs[state["urn"]]}
            for step in steps
            # The engine asks no rule about what a stack only reads.
            if (state := step.get("newState")) is not None and not state.get("external")
        )
    )


def _copy_project(project: Project, stack: str, folder: Path) -> dict[str, Any]:
    import yaml

    for name in COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(project.root / name, folder / name)
    settings = project.root / f"Pulumi.{stack}.yaml"
    if not settings.is_file():
        message = f"there is no {settings.name}"
        raise EnvironmentFailure(message, hint="name a stack that has its settings file")
    # Values only: the secrets provider that the file may name is out of reach here.
    config = cast("dict[str, Any]", yaml.safe_load(settings.read_text(encoding="utf-8"))).get(
        "config", {}
    )
    (folder / settings.name).write_text(yaml.safe_dump({"config": config}), encoding="utf-8")
    return config


def _run(command: list[str], folder: Path, env: Mapping[str, str]) -> str:
    name = f"`pulumi {command[1]}`"
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=TIMEOUT_S,
        )
    except FileNotFoundError as error:
        message = f"{name}: there is no {command[0]}"
        raise EnvironmentFailure(message, hint="make setup") from error
    except subprocess.TimeoutExpired as error:
        message = f"{name} took longer than {TIMEOUT_S} s"
        raise EnvironmentFailure(message, hint="type the same on a quieter machine") from error
    if done.returncode != 0:
        message = f"{name} failed:\n{_explain(done)}"
        raise EnvironmentFailure(message, hint="mend what it names, then type the same again")
    return done.stdout


def _explain(done: subprocess.CompletedProcess[str]) -> str:
    """Collect the errors of a digest, else all output."""
    _, brace, rest = done.stdout.partition("{")
    try:
        digest = cast("dict[str, Any]", json.loads(brace + rest))
    except ValueError:
        digest = {}
    diagnostics = cast("list[dict[str, str]]", digest.get("diagnostics", []))
    errors = [each["message"].strip() for each in diagnostics if each["severity"] == "error"]
    return "\n".join(errors) or (done.stdout + done.stderr).strip()


def _stack_outputs(events: Path) -> dict[str, Any]:
    """Read the outputs of the stack's own resource, by its urn."""
    found: dict[str, Any] = {}
    for line in events.read_text(encoding="utf-8").splitlines():
        metadata = json.loads(line).get("resOutputsEvent", {}).get("metadata", {})
        if metadata.get("type") == "pulumi:pulumi:Stack":
            made = cast("dict[str, Any]", metadata.get("new") or {})
            found[metadata["urn"]] = made.get("outputs") or {}
    return found
