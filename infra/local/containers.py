"""Lists and creates the containers of a blob store on loopback, with its account key."""

from __future__ import annotations

from typing import Any

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobServiceClient

TIMEOUT_S = 5


class StoreError(Exception):
    """The store does not answer, or answers with an error."""


def list_containers(port: int, account: str, key: str) -> set[str]:
    """Give the names of all containers. Raises StoreError, also if the store has another key."""
    try:
        with _client(port, account, key) as client:
            return {str(each.name) for each in client.list_containers()}
    except (AzureError, ValueError) as error:
        raise StoreError(_first_line(error)) from error


def create_container(port: int, account: str, key: str, name: str) -> None:
    """Create a container; does nothing if it is there already. Raises StoreError."""
    try:
        with _client(port, account, key) as client:
            client.create_container(name)
    except ResourceExistsError:
        return
    except (AzureError, ValueError) as error:
        raise StoreError(_first_line(error)) from error


def _client(port: int, account: str, key: str) -> Any:
    return BlobServiceClient(
        f"http://127.0.0.1:{port}/{account}",
        credential={"account_name": account, "account_key": key},
        # A proxy of the environment is not for this machine; whoever waits asks again.
        transport=RequestsTransport(use_env_settings=False),
        retry_total=0,
        connection_timeout=TIMEOUT_S,
        read_timeout=TIMEOUT_S,
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
