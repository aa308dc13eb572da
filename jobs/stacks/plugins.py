"""Finds and ends the plugin processes that a killed `pulumi` has left behind (Linux).

Pulumi's language host notices within five minutes, the provider process never; a provider in
the middle of its work would go on with it beside the next `pulumi up`.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

PLUGINS = (
    b"pulumi-language-python",
    b"pulumi-resource-azure-native",
    b"pulumi-resource-pulumi-python",
    b"pulumi.dynamic",
)
CLI = b"pulumi"


class _Process(Struct, frozen=True, kw_only=True):
    pid: int
    parent: int
    argv: tuple[bytes, ...]


def end_orphans(pulumi_home: Path) -> int:
    """End the plugins of this PULUMI_HOME above which no `pulumi` lives; how many there were.

    Nothing is found, and 0 returned, where there is no /proc.
    """
    table = {process.pid: process for process in _read_processes()}
    orphans = [
        process
        for process in table.values()
        if _is_plugin(process)
        and not _has_cli_above(process, table)
        and _is_of_home(process.pid, pulumi_home)
    ]
    for process in orphans:
        # Without an engine to answer to there is nothing that they could put in order.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
    return len(orphans)


def _read_processes() -> list[_Process]:
    found: list[_Process] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            argv = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])
        found.append(_Process(pid=int(entry.name), parent=parent, argv=tuple(argv)))
    return found


def _is_plugin(process: _Process) -> bool:
    # `sh SCRIPT ...`, `python -u SCRIPT ...`, `python -u -m pulumi.dynamic ...`
    words = [os.path.basename(word) for word in process.argv[:4]]  # noqa: PTH119 - bytes
    return any(word.startswith(PLUGINS) for word in words)


def _has_cli_above(process: _Process, table: dict[int, _Process]) -> bool:
    parent = table.get(process.parent)
    while parent is not None:
        if os.path.basename(parent.argv[0]) == CLI:  # noqa: PTH119 - bytes
            return True
        parent = table.get(parent.parent)
    return False


def _is_of_home(pid: int, pulumi_home: Path) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"PULUMI_HOME=" + os.fsencode(pulumi_home) in variables
