"""Types `launch` on an environment whose blob store is a real Azurite."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from jobs.contracts.spec import Environment
from tests import needs
from tests.fakes.azurite import azurite
from tests.fakes.own_stack import lay_own_stack
from tests.fakes.typed_launch import launch


@dataclass(frozen=True)
class Store:
    """One Azurite and the environment that names it."""

    folder: Path
    environment: Environment
    env_file: Path

    def launch(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Type `launch ARGUMENTS --env FILE`."""
        return launch(self.folder, *arguments, "--env", self.env_file)

    def json(self, *arguments: str) -> Any:
        """Type it with `--json`; gives what it printed."""
        done = self.launch(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@contextmanager
def launched_store(folder: Path) -> Iterator[Store]:
    """Serve an empty store until the end."""
    with azurite(folder) as environment:
        (folder / "environment.json").write_bytes(msgspec.json.encode(environment))
        # A store that died is started again where it is that of the project's own stack.
        lay_own_stack(folder, msgspec.to_builtins(environment), needs.tools_of_set_up())
        yield Store(folder, environment, folder / "environment.json")
