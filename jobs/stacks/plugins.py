"""Ends the plugin processes that a killed `pulumi` has left behind (Linux).

Pulumi's language host notices within five minutes, the provider process never; a provider in
the middle of its work would go on with it beside the next `pulumi up`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.host.processes import Process

PLUGINS = (
    b"pulumi-language-python",
    b"pulumi-resource-azure-native",
    b"pulumi-resource-pulumi-python",
    b"pulumi.dynamic",
)
CLI = b"pulumi"


def end_orphans(pulumi_home: Path) -> int:
    """Kill the plugins of this PULUMI_HOME that have no living `pulumi` above; return their number.

    Finds none where there is no /proc.
    """
    if not Path("/proc/self").exists():
        return 0
    from jobs.host.processes import read_table, read_variables, send

    home = b"PULUMI_HOME=" + os.fsencode(pulumi_home)
    table = read_table()
    orphans = [
        process
        for process in table.values()
        # `sh SCRIPT ...`, `python -u SCRIPT ...`, `python -u -m pulumi.dynamic ...`
        if any(name.startswith(PLUGINS) for name in _names(process.pid)[:4])
        and not _has_cli_above(process, table)
        and home in read_variables(process.pid)
    ]
    for process in orphans:
        # Without an engine to answer to there is nothing that they could put in order.
        send(process, signal.SIGKILL)
    return len(orphans)


def _has_cli_above(process: Process, table: Mapping[int, Process]) -> bool:
    parent = table.get(process.parent)
    while parent is not None:
        if _names(parent.pid)[:1] == [CLI]:
            return True
        parent = table.get(parent.parent)
    return False


def _names(pid: int) -> list[bytes]:
    """List the words of a process's command, paths by their last part."""
    from jobs.host.processes import read_words

    return [word.rpartition(b"/")[2] for word in read_words(pid)]
