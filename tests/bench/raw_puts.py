"""The limit: `python -m tests.bench.raw_puts ENDPOINT FOLDER` sends files over bare sockets.

Reads each file at once and puts it on one of eight connections, with no signature, no hash and no
look at the answer. Prints files/s.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

NUM_CONNECTIONS = 8


def main() -> int:
    """Send all files below the folder."""
    address = urlsplit(sys.argv[1])
    paths = [str(path) for path in Path(sys.argv[2]).rglob("*") if path.is_file()]
    connections = [
        socket.create_connection((address.hostname or "", address.port or 80))
        for _ in range(NUM_CONNECTIONS)
    ]
    started = time.perf_counter()
    for number, path in enumerate(paths):
        connection = connections[number % NUM_CONNECTIONS]
        if number >= NUM_CONNECTIONS:
            connection.recv(4096)
        descriptor = os.open(path, os.O_RDONLY)
        content = os.read(descriptor, 1 << 20)
        os.close(descriptor)
        head = (
            f"PUT {address.path}/data/raw/{number} HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"x-ms-blob-type: BlockBlob\r\nContent-Length: {len(content)}\r\n\r\n"
        ).encode()
        sent = connection.sendmsg([head, content])
        if sent < len(head) + len(content):
            connection.sendall(memoryview(head + content)[sent:])
    for connection in connections[: len(paths)]:
        connection.recv(4096)
    print(len(paths) / (time.perf_counter() - started))
    return 0


if __name__ == "__main__":
    sys.exit(main())
