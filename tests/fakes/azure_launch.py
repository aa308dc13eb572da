"""Types `launch` against the stand-in Azure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fakes.azureml import FakeAzure
from tests.fakes.forked_launch import Crash
from tests.fakes.typed_launch import Typed, Typing, begin_launch


class AzureLaunch:
    """A practitioner at one machine: an environment file, a state folder, jobs."""

    def __init__(
        self, azure: FakeAzure, folder: Path, *, images: Mapping[str, str] | None = None
    ) -> None:
        self.azure = azure
        self.folder = folder
        self.environ = {**azure.environ, "XDG_STATE_HOME": str(folder / "state")}
        self.env_file = folder / "dev.json"
        pinned = {"python": f"registry.azurecr.io/python@sha256:{'a' * 64}"}
        self.env_file.write_text(json.dumps(azure.environment(images=images or pinned)))

    def write_job(self, program: str = "print('hello')", **keys: Any) -> Path:
        """A job file with a script beside it; JSON is YAML."""
        code = self.folder / "job"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(program)
        job = {"name": "first", "image": "python", "script": "train.py", **keys}
        path = code / "job.yaml"
        path.write_text(json.dumps(job))
        return path

    def type(self, *words: str | Path, crash: Crash = "", with_environment: bool = True) -> Typed:
        """Run `launch WORDS --env FILE`."""
        environment = ["--env", str(self.env_file)] if with_environment else []
        return self._begin([*map(str, words), *environment], crash).end()

    def begin(self, *words: str | Path) -> Typing:
        """The same, not waited for; what is typed meanwhile needs a machine of its own."""
        return self._begin([*map(str, words), "--env", str(self.env_file)], "")

    def _begin(self, argv: Sequence[str], crash: Crash) -> Typing:
        return begin_launch(argv, environ=self.environ, folder=self.folder, crash=crash)

    def run_dirs(self) -> list[Path]:
        """What this machine knows of."""
        return sorted(self.folder.glob("state/trainyard/*/runs/*"))
