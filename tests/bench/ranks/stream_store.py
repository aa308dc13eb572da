"""Serves a folder as a blob store with a delay; answers each line it is sent with the bytes it gave.

python stream_store.py FOLDER DELAY_S
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fakes.range_server import RangeServer


def main() -> None:
    """Say the port, then the bytes that were sent each time that somebody asks."""
    server = RangeServer(Path(sys.argv[1]), delay_s=float(sys.argv[2]))
    print(server.port, flush=True)
    for _ in sys.stdin:
        print(server.sent_bytes, flush=True)


if __name__ == "__main__":
    main()
