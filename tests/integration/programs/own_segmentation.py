"""The segmentation of examples/own-model as a program with a main."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "own-model"


def main(argv: Sequence[str]) -> int:
    """Run the example's own training."""
    sys.path.insert(0, str(EXAMPLE))
    segmentation = importlib.import_module("segmentation")
    return segmentation.own.main(segmentation.MINE, argv)
