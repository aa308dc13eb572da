"""Types `launch` in processes that are forks of one which has loaded all of it once.

They are processes of their own, as those that a person starts are, but for the half second in which
Python loads what `launch` needs.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path

from tests.fakes.forked_launch import run_launch

# Longer than anything takes here, however busy the machine.
TIMEOUT_S = 300.0
# A fork of the tests would take their threads' locks along.
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "tests.fakes.forked_launch",
        *(f"jobs.commands.{verb}" for verb in ("cluster", "env", "ls", "run", "wait")),
        *(f"jobs.commands.{verb}" for verb in ("data", "import", "rerun", "show")),
        *("jobs.commands.plan", "jobs.commands.planning", "jobs.launching.start"),
        *("jobs.launching.shared_runs", "jobs.launching.foresee", "jobs.launching.known_runs"),
        *("jobs.blobs.download", "jobs.blobs.upload", "jobs.runs.logs", "jobs.runs.ending"),
        *("jobs.stacks.read", "jobs.stacks.prices", "jobs.stacks.cost", "yaml"),
        *(f"jobs.engines.azure_ml.{name}" for name in ("engine", "retry", "runs", "submission")),
        *("jobs.engines.azure_ml.clusters", "jobs.engines.azure_ml.quota"),
        *("jobs.engines.local.engine", "jobs.blobs.store"),
        *("azure.identity", "azure.storage.blob.aio", "msal_extensions"),
    ]
)


def launch(
    folder: Path, *words: str | Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Type `launch WORDS` in a folder and wait for its end; nothing is read from stdin."""
    argv = [str(word) for word in words]
    given = dict(os.environ if environ is None else environ)
    with tempfile.TemporaryDirectory() as place:
        out, err = (Path(place) / name for name in ("stdout", "stderr"))
        arguments = (argv, given, str(folder), str(out), str(err), "")
        child = FORKS.Process(target=run_launch, args=arguments)
        child.start()
        child.join(TIMEOUT_S)
        code = child.exitcode
        child.kill()
        assert code is not None, (argv, err.read_text())
        return subprocess.CompletedProcess(argv, code, out.read_text(), err.read_text())
