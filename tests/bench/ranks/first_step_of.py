"""Runs a PyTorch program of ours up to the end of its first step, and ends the process there.

first_step_of.py trainer.pytorch.mnist --data DIR ...
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence


def end_after_first_step() -> None:
    """Have the loop's first step end the process, as nothing after it is to be timed."""
    from trainer.pytorch import loop

    take_step = loop.take_step

    def take_one(*given: object, **named: object) -> None:
        take_step(*given, **named)
        os._exit(0)

    loop.take_step = take_one


def main(argv: Sequence[str]) -> None:
    program = importlib.import_module(argv[0])
    end_after_first_step()
    sys.exit(f"{argv[0]} took no step: {program.main(argv[1:])}")


if __name__ == "__main__":
    main(sys.argv[1:])
