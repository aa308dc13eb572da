"""A project of its own per test: real Pulumi, real SDK, a stand-in for the provider and Azure."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import needs
from tests.busy import wait_until
from tests.fakes import azure_native
from tests.pulumi_project import REPO, PulumiProject

PREFIX = "trainyard:"


@dataclass
class CloudProject(PulumiProject):
    """A project with a stack on Azure, as committed; `azure` is the subscription's folder."""

    # The settings of the last `up`.
    applied: dict[str, Any] | None = None

    @property
    def azure(self) -> Path:
        return self.root / "azure"

    def up(self, *arguments: str, check: bool = True) -> str:
        self.applied = copy.deepcopy(self.settings)
        return super().up(*arguments, check=check)

    def live(self) -> dict[str, dict[str, Any]]:
        """What is there in the subscription, by id."""
        records = self._subscription().get("resources", {}).values()
        return {each["id"]: each for each in records}

    def computes(self) -> dict[str, dict[str, Any]]:
        """Live clusters: physical name -> the properties that their declaration has."""
        return {
            identifier.rpartition("/")[2]: each["outputs"]["properties"]["properties"]
            for identifier, each in self.live().items()
            if "/computes/" in identifier
        }

    def soft_deleted(self) -> set[str]:
        """Names of what was deleted and still holds its name."""
        records = self._subscription().get("deleted", {}).values()
        return {each["id"].rpartition("/")[2] for each in records}

    def owned(self) -> dict[str, str]:
        """Ids of what the stack has made, as Pulumi's record has them, by name."""
        return {
            name: each["id"]
            for name, each in self.resources().items()
            if each["type"].startswith("azure-native:")
        }

    def script(self, **troubles: Any) -> None:
        """Let things go wrong from now on; nothing where nothing is given."""
        (self.azure / "troubles.json").write_text(json.dumps(troubles))

    def change_live(self, identifier: str, *, path: str, value: Any) -> None:
        """Move a value of a live resource, as somebody else would."""
        found = self._subscription()
        inner = found["resources"][identifier.lower()]["outputs"]
        *parents, last = path.split(".")
        for parent in parents:
            inner = inner[parent]
        assert inner[last] != value
        inner[last] = value
        (self.azure / "resources.json").write_text(json.dumps(found))

    def remove_live(self, *identifiers: str) -> None:
        """Take resources away, as somebody else would."""
        found = self._subscription()
        for each in identifiers:
            del found["resources"][each.lower()]
        (self.azure / "resources.json").write_text(json.dumps(found))

    def preview(self, *arguments: str) -> dict[str, str]:
        """What `up` would do to each resource that it does not leave as it is."""
        self.write_settings()
        done = self.pulumi("preview", "-s", self.stack, "--json", *arguments, check=False)
        said = json.loads(done.stdout[done.stdout.index("{") :])
        assert done.returncode == 0, [each["message"] for each in said["diagnostics"]]
        found: dict[str, str] = {}
        for step in said["steps"]:
            name = step["urn"].rpartition("::")[2]
            if step["op"] not in {"same", "read"}:
                found[name] = f"{found[name]}, {step['op']}" if name in found else step["op"]
        return found

    def start_up(self) -> subprocess.Popen[bytes]:
        """An `up` that goes on beside the test; its wrapper becomes Pulumi, so its pid is that."""
        self.write_settings()
        return subprocess.Popen(
            self.pulumi_command("up", "-s", self.stack, "--yes", "--skip-preview"),
            cwd=self.root,
            env=self.environment_variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_until_used_up(self, up: subprocess.Popen[bytes]) -> None:
        """Until every scripted failure has come to pass."""

        def left() -> list[Any]:
            return json.loads((self.azure / "troubles.json").read_text())["failures"]

        wait_until(lambda: not left(), 120, left, over=up.poll)

    def _subscription(self) -> dict[str, Any]:
        file = self.azure / "resources.json"
        return json.loads(file.read_text()) if file.exists() else {}


def read_settings(stack: str) -> dict[str, Any]:
    """The settings that the repository has for a stack's stage; roles of the stand-in work at once."""
    stage = stack.partition("-")[0]
    committed = yaml.safe_load((REPO / f"Pulumi.{stage}.yaml").read_text())["config"]
    settings = {key.removeprefix(PREFIX): value for key, value in committed.items()}
    return settings | {"role_wait_s": 0}


@contextmanager
def fresh_project(root: Path, stack: str) -> Iterator[CloudProject]:
    """A project whose stack was never up, with the settings that the repository has for it."""
    made = CloudProject(root=root, stack=stack)
    made.settings = read_settings(stack)
    made.azure.mkdir(parents=True)
    with needs.whole_environment():
        azure_native.install(root / "plugin", python=sys.executable)
    made.variables = {
        "PATH": f"{root / 'plugin'}:{made.environment_variables['PATH']}",
        "PULUMI_BACKEND_URL": f"file://{root / '.trainyard/state'}",
        "PULUMI_CONFIG_PASSPHRASE": "",
        azure_native.FOLDER: str(made.azure),
    }
    (root / ".trainyard/state").mkdir(parents=True)
    made.lay()
    yield made


@pytest.fixture
def new_project(tmp_path: Path) -> Iterator[Callable[[str], CloudProject]]:
    """Gives projects of the test's own by stack, none of them up."""
    with ExitStack() as closing:
        yield lambda stack: closing.enter_context(fresh_project(tmp_path / stack, stack))


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudProject]:
    """One project with a stack `dev` for all tests of a process."""
    with fresh_project(tmp_path_factory.mktemp("standing") / "dev", "dev") as made:
        yield made


@pytest.fixture
def standing(kept: CloudProject) -> CloudProject:
    """`dev` as committed, up: brought back where the last test changed it."""
    kept.settings = read_settings("dev")
    if kept.applied != kept.settings:
        kept.up()
    return kept
