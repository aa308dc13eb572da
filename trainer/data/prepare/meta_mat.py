"""Prints the classes of ImageNet's `meta.mat`, read from stdin, as JSON pairs of number and name.

It runs as a process of its own: SciPy's reader is C, and a damaged file may crash it or make it ask
for all memory. The limits are set after SciPy is imported, which needs more than any such file.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

_MOST_BYTES = 128 << 20
_MOST_CPU_S = 5


def main() -> None:
    """Print the pairs; exit with a message, or by a traceback, for a file that has none."""
    from scipy.io import loadmat

    _limit_resources()
    structs = loadmat(io.BytesIO(sys.stdin.buffer.read()), variable_names=["synsets"]).get(
        "synsets"
    )
    if structs is None or structs.dtype.names is None:
        sys.exit("it has no structs `synsets`")
    pairs = [(int(row["ILSVRC2012_ID"].item()), str(row["WNID"].item())) for row in structs.ravel()]
    print(json.dumps(pairs))


def _limit_resources() -> None:
    """Bound memory and time of the rest of this process; Linux only."""
    if sys.platform != "linux":
        return
    import resource
    import time

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most_bytes = pages * resource.getpagesize() + _MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    most_cpu_s = int(time.process_time()) + _MOST_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (most_cpu_s, most_cpu_s))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
