"""List and read the container in which Azure ML keeps a job's logs, by our own identity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from jobs.blobs.authority import Identity
from jobs.blobs.azure_store import AzureStore
from jobs.blobs.container import Container
from jobs.blobs.refusals import StoreError, explain_store
from jobs.contracts.errors import EnvironmentFailure
from jobs.host import console

if TYPE_CHECKING:
    from jobs.blobs.files import Blob
    from jobs.engines.azure_ml.client import ArmClient

DATASTORE = "workspaceartifactstore"
# Requests under way at once.
NUM_CONNECTIONS = 8


class Artifacts:
    """A workspace's artifacts. Everything blocks, and raises EnvironmentFailure."""

    def __init__(self, client: ArmClient) -> None:
        self._stack = client.environment.stack
        path = f"{client.workspace}/datastores/{DATASTORE}"
        found = client.get(path, what="looking up where logs are kept")["properties"]
        self.account, self.container = found["accountName"], found["containerName"]
        scheme, suffix = found.get("protocol") or "https", found.get("endpoint")
        self.url = f"{scheme}://{self.account}.blob.{suffix or 'core.windows.net'}"
        container = Container(
            f"{self.url}/{self.container}",
            Identity(client.tokens),
            waiting=partial(_say_waiting, self.url),
        )
        self.store = AzureStore(container, self._explain)
        self._pool = ThreadPoolExecutor(NUM_CONNECTIONS, thread_name_prefix="artifacts")

    def list(self, job: str, folder: str) -> Iterator[Blob]:
        """Yield the blobs of a job below a folder that ends with a slash."""
        return self.store.list(f"{job_prefix(job)}{folder}")

    def read_parts(self, job: str, parts: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
        """Yield the bytes from, up to but without, of these files of a job; empty for what is gone.

        All are asked for at once.
        """
        prefix = job_prefix(job)
        return self._pool.map(
            self._read, [(prefix + name, start, end) for name, start, end in parts]
        )

    def _read(self, part: tuple[str, int, int]) -> bytes:
        name, start, end = part
        return (self.store.read_range(name, start, end) or b"") if end > start else b""

    def _explain(self, error: StoreError) -> EnvironmentFailure:
        role = (
            "az login, with an identity that has the role Storage Blob Data Reader there: the owner "
            "of the stack adds our group to `people`"
        )
        check = f"launch env check -s {self._stack}"
        return explain_store(error, f"{self.url}, where logs are kept,", role=role, check=check)


def job_prefix(job: str) -> str:
    """Give the prefix of the names of a job's artifacts."""
    return f"ExperimentRun/dcid.{job}/"


def _say_waiting(url: str, reason: str) -> None:
    console.say(f"waiting for the store {url}: {reason}")
