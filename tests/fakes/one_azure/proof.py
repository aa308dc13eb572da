"""Runs tools/prove_azure against the stand-in: a clone of its own, a subscription of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.naming import Names
from tests.fakes import azure_native
from tests.fakes.one_azure.subscription import OneAzure
from tests.pulumi_project import REPO, PulumiProject
from tools import gate
from tools.project import Project
from tools.prove_azure.__main__ import main
from tools.prove_azure.session import Patience

OPTIONS = (
    *("--owner", "ada@example.com", "--group", "0b1ec700-0000-4000-8000-00000000a2ee"),
    *("--address", "20.30.40.50", "--yes"),
)
PATIENCE = Patience(role_wait_s=0, roles_s=2.0, pause_s=0.2, looks=2, limit="3s")


class Proof:
    """One stack that is proved again and again; `azure` is switched by tests."""

    def __init__(self, root: Path, azure: OneAzure, stack: str) -> None:
        self.clone = root / "clone"
        self.azure = azure
        self.stack = stack
        self.environ = {
            **azure.environ,
            "PATH": f"{azure.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TRAINYARD_PRICES": "table",
            "XDG_STATE_HOME": str(root / "state"),
            gate.SKIP: stack,
        }
        self.project = Project(root=self.clone, cache=root / "cache")

    @property
    def folder(self) -> Path:
        """Where record, log and report lie."""
        return self.clone / ".trainyard" / "prove" / self.stack

    def prove(self, *words: str, patience: Patience = PATIENCE) -> int:
        """Type `make prove-azure` with these options; its exit code."""
        return main(
            [*OPTIONS, *words], project=self.project, environ=self.environ, patience=patience
        )

    def report(self) -> dict[str, Any]:
        """Read the last report."""
        return json.loads((self.folder / "report.json").read_text())

    def denied(self) -> dict[str, str]:
        """Ids of the assumptions that the last report says do not hold, with the words."""
        return {
            row["id"]: row["words"]
            for row in self.report()["unknowns"]
            if row["verdict"] == "denied"
        }

    def steps(self) -> dict[str, str]:
        """How each step of the last report ended."""
        return {row["name"]: row["outcome"] for row in self.report()["steps"]}

    def keep(self, copies: Path) -> None:
        """Copy what both sides have of a stack that is up."""
        shutil.copytree(self.folder.parent, copies / "prove")
        shutil.copytree(self.azure.subscription, copies / "subscription")

    def restore(self, copies: Path) -> None:
        """Go back to such a copy, whatever has happened since."""
        self.forget()
        shutil.copytree(copies / "prove", self.folder.parent)
        shutil.copytree(copies / "subscription", self.azure.subscription, dirs_exist_ok=True)
        self.azure.deviate()

    def forget(self) -> None:
        """Go back to before everything, on both sides."""
        shutil.rmtree(self.clone / ".trainyard" / "prove", ignore_errors=True)
        for file in self.azure.subscription.iterdir():
            file.unlink()
        self.azure.deviate()

    def lay(self) -> None:
        """Copy what Pulumi reads, and trust it as `make setup` would."""
        made = PulumiProject(root=self.clone, stack=self.stack)
        self.clone.mkdir()
        made.lay_files()
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPO / "trainer", self.clone / "trainer", ignore=without)
        trust = [sys.executable, "-P", "-m", "jobs.cli", "env", "trust", str(self.clone)]
        subprocess.run(trust, env={**os.environ, **self.environ}, check=True, capture_output=True)


@contextmanager
def standing_proof(
    root: Path, runtimes: Mapping[str, Path], *, stack: str = "dev-prove"
) -> Iterator[Proof]:
    """A proof and its Azure, for as long as the context."""
    names = Names(
        prefix="prove", stack=stack, generation=1, subscription_id=azure_native.SUBSCRIPTION_ID
    )
    subscription = root / "subscription"
    subscription.mkdir(parents=True)
    with OneAzure(root / "azure", subscription, runtimes=runtimes, names=names) as azure:
        azure.install()
        proof = Proof(root, azure, stack)
        proof.lay()
        yield proof
