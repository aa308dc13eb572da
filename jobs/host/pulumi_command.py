"""Writes the commands of Pulumi in a hint as they work in the shell that `launch` was typed in."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from jobs.contracts.errors import LaunchError

# These commands are typed on another machine.
_ELSEWHERE = "for the owner of the stack"
_COMMAND = re.compile(r"(?<![\w./-])(?:uv run )?pulumi (?=[a-z])")


def as_typed_here(hint: str) -> str:
    """Name the Pulumi of this project by a word or path that the shell finds.

    An activated environment has `pulumi` on PATH; without one `uv run` finds it where uv is, and
    else its path does. The hint stays as it is where set-up has made no Pulumi.
    """
    own = Path(sys.prefix) / "bin" / "pulumi"
    if hint.startswith(_ELSEWHERE) or not _COMMAND.search(hint) or not own.exists():
        return hint
    return _COMMAND.sub(lambda _: f"{_command(own)} ", hint)


def _command(own: Path) -> str:
    from jobs.host.project import project_root

    try:
        root, here = project_root(), Path.cwd()
    except (LaunchError, OSError):
        return str(own)
    found = shutil.which("pulumi")
    if found is not None and Path(found).absolute() == own.absolute():
        command = "pulumi"
    elif shutil.which("uv") and here.is_relative_to(root):
        command = "uv run pulumi"
    else:
        command = shlex.quote(os.path.relpath(own) if own.is_relative_to(here) else str(own))
    return command if here.is_relative_to(root) else f"{command} -C {shlex.quote(str(root))}"
