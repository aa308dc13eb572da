"""Hints in the words of who works with an environment's file and has no stack (pure)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

# Both need the stack itself. `-s STACK` means: with a stack, where a file will not do.
_OF_OWNER = re.compile(r"\bpulumi \w|\blaunch env repair\b")
_STACK = re.compile(r"(\blaunch [^;,`]*?)-s (?!STACK\b)[^\s;,`]+")


def for_file(hint: str, file: Path) -> str:
    """What to type instead of a hint's commands for a stack; `file` is what `--env` was given."""
    if _OF_OWNER.search(hint):
        return f"for whoever owns the stack: {hint}; then `launch env export` writes a new {file}"
    given = f"--env {shlex.quote(str(file))}"
    return _STACK.sub(lambda found: found[1] + given, hint)
