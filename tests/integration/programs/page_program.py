"""Runs the program of docs/adding-a-trainer.md as a module of trainer/pytorch, from a file.

main([FILE, ...options of the program])
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

NAME = "trainer.pytorch.line"


def main(argv: Sequence[str]) -> int:
    """Load the file, then run its main."""
    file, *rest = argv
    spec = importlib.util.spec_from_file_location(NAME, file)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = program
    spec.loader.exec_module(program)
    return program.main(rest)
