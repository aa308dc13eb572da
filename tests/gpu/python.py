"""Prints the Python of `make gpu`: the `pytorch` image's, with a layer of the peer over it."""

from __future__ import annotations

import os
import sys

from jobs.contracts.errors import LaunchError
from jobs.host.progress import step
from jobs.images.layers import build_layer, layer_root
from jobs.images.runtimes import runtime_python
from jobs.rank.layer import layer_python
from tests.gpu.programs import PROJECT

FOLDER, PEERS = PROJECT / "tests" / "gpu", "peers.txt"


def main() -> int:
    """Print its path; 2 with a message where it cannot be made."""
    try:
        below = runtime_python("pytorch", PROJECT)
        layer = build_layer(
            layer_root(below, [(FOLDER / PEERS).read_text()]),
            below,
            PROJECT,
            folder=FOLDER,
            requirements=PEERS,
            environ=os.environ,
            report=step,
        )
    except LaunchError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return 2
    print(layer_python(str(layer)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
