"""Peers over azure-storage-blob: `python -m tests.bench.sdk_pushes serial|pool CONTAINER_URL FOLDER`.

What a person writes without a tool: a loop over the files, or 32 threads that share one client.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from azure.storage.blob import ContainerClient

from tests.bench.sink import ACCOUNT, KEY

THREADS = 32


def main() -> int:
    """Send every file below the folder under its path."""
    way, url, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    client = ContainerClient.from_container_url(
        url, credential=credential, connection_pool_maxsize=THREADS
    )
    files = [path for path in folder.rglob("*") if path.is_file()]
    send = _sender(client, folder)
    if way == "serial":
        for path in files:
            send(path)
    else:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(send, files))
    return 0


def _sender(client: ContainerClient, folder: Path) -> Callable[[Path], None]:
    def send(path: Path) -> None:
        with path.open("rb") as content:
            client.upload_blob(
                path.relative_to(folder).as_posix(), content, overwrite=True, max_concurrency=1
            )

    return send


if __name__ == "__main__":
    sys.exit(main())
