"""Runs a script of the examples in a fork of what has loaded PyTorch.

main([FILE, ...])     where ranks meet, which a launcher says in the environment, is put there
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit


def main(argv: Sequence[str]) -> int:
    """Run the script as Python does."""
    place = urlsplit(argv[argv.index("--dist-url") + 1])
    os.environ.update(MASTER_ADDR=str(place.hostname), MASTER_PORT=str(place.port))
    sys.argv = [argv[0]]
    runpy.run_path(argv[0], run_name="__main__")
    return 0
