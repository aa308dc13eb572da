"""Press Tab for tests: ask `launch` as typer's function of each shell does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

LAUNCH = Path(sys.executable).with_name("launch")


def press_tab(line: str, shell: str = "bash", *, cwd: Path | None = None, **variables: str) -> str:
    """Give what `launch` answers a shell at the end of the line; nothing is said beside it."""
    done = subprocess.run(
        [LAUNCH],
        env={
            **os.environ,
            "_LAUNCH_COMPLETE": f"complete_{shell}",
            **_asked(line, shell),
            **variables,
        },
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")
    return done.stdout.strip("\n")


def _asked(line: str, shell: str) -> Mapping[str, str]:
    if shell == "bash":
        words = [*line.split(), *([""] if line.endswith(" ") else [])]
        return {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    asked = {"_TYPER_COMPLETE_ARGS": line}
    if shell == "fish":
        return asked | {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    if shell == "powershell":
        last = "" if line.endswith(" ") else line.rsplit(maxsplit=1)[-1]
        return asked | {"_TYPER_COMPLETE_WORD_TO_COMPLETE": last}
    return asked
