"""Word the logs of how a run's image and nodes were made ready."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import RunHandle
from jobs.engines.base import Attended, Engine
from jobs.host import console


def preparation_lines(engine: Engine, handle: RunHandle) -> Iterator[str]:
    """Yield the lines, each file's after its name; raise LaunchError for a run of this machine."""
    if not isinstance(engine, Attended):
        message = f"{handle.id} is a local run, which has no preparation log"
        raise LaunchError(message, hint=f"launch show {handle.id}")
    shown = ""
    for name, line in engine.preparation(handle):
        if name != shown:
            yield console.styled(f"==> {name} <==", "bold")
            shown = name
        yield line
