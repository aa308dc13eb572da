"""Azurite as the storage behind the stand-in: started here, reached by Azure's names or directly."""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import (
    BlobServiceClient,
    ContainerClient,
    ContentSettings,
    generate_container_sas,
)

from tests.busy import HANG_S, Bound
from tests.fakes.azureml.certificates import Authority
from tests.fakes.azureml.messages import Reply, Request
from tests.ports import free_port

SUFFIX = ".blob.core.windows.net"
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
START_TIMEOUT_S = 200.0


def blob_refusal(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Reply:
    """An error in the storage's form."""
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    content = f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()
    kind = {"Content-Type": "application/xml", "x-ms-error-code": code}
    return Reply(status=status, body=content, headers={**kind, **(headers or {})})


class Blobs:
    """Storage accounts with keys of their own, in `folder`; `accounts` are their names."""

    def __init__(
        self, folder: Path, authority: Authority, accounts: Iterable[str], *, program: list[str]
    ) -> None:
        self.keys = {name: base64.b64encode(secrets.token_bytes(32)).decode() for name in accounts}
        self._folder = folder
        self._trusted = authority.certificate
        self._port = free_port()
        certificate, key = authority.issue("127.0.0.1")
        options = ["--blobHost", "127.0.0.1", "--blobPort", str(self._port)]
        options += ["--location", str(folder), "--cert", str(certificate), "--key", str(key)]
        options += ["--oauth", "basic", "--loose", "--skipApiVersionCheck", "--silent"]
        options += ["--disableTelemetry"]
        self._argv = [*program, *options]
        self._idle: list[http.client.HTTPSConnection] = []
        self._clients: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Block until it listens."""
        self._folder.mkdir(parents=True, exist_ok=True)
        accounts = ";".join(f"{name}:{key}" for name, key in self.keys.items())
        env = {**os.environ, "AZURITE_ACCOUNTS": accounts}
        with (self._folder / "azurite.log").open("wb") as log:
            self._process = subprocess.Popen(self._argv, env=env, stdout=log, stderr=log)
        bound = Bound(START_TIMEOUT_S)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=HANG_S).close()
            except OSError:
                alive = self._process.poll() is None and not bound.is_passed()
                assert alive, (self._folder / "azurite.log").read_text()
                time.sleep(0.02)
            else:
                break
        for account in self.keys:
            self._clients[account] = BlobServiceClient(
                f"https://127.0.0.1:{self._port}/{account}",
                credential={"account_name": account, "account_key": self.keys[account]},
                connection_verify=str(self._trusted),
                # Not through the proxy, whatever a test has put into the environment.
                proxies={"https": ""},
                use_env_settings=False,
            )

    def stop(self) -> None:
        for each in (*self._clients.values(), *self._idle):
            each.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def container(self, account: str, name: str) -> ContainerClient:
        """A client of a container, made where it is not there."""
        client = self._clients[account].get_container_client(name)
        with suppress(ResourceExistsError):
            client.create_container()
        return client

    def delete_all(self) -> None:
        """Delete all containers of all accounts."""
        for client in self._clients.values():
            for each in client.list_containers():
                client.delete_container(each.name)

    def open(self, account: str, name: str) -> ContainerClient:
        """A client of a container that is there."""
        return self._clients[account].get_container_client(name)

    def sas(self, account: str, container: str, permission: str, path: str = "") -> str:
        """The address of a container, or of something in it, with a token."""
        token = generate_container_sas(
            account_name=account,
            container_name=container,
            account_key=self.keys[account],
            permission=permission,
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )
        return f"{self.address(account, container, path)}?{token}"

    def address(self, account: str, container: str, path: str = "") -> str:
        return f"https://{account}{SUFFIX}/{container}" + (f"/{path}" if path else "")

    def knows(self, host: str) -> bool:
        return host.removesuffix(SUFFIX) in self.keys and host.endswith(SUFFIX)

    def handle(self, request: Request) -> Reply:
        """Forward a request as it is: its signature covers nearly every byte."""
        if request.method == "PUT" and "x-ms-blob-type" in request.headers:
            source = request.headers.get("x-ms-copy-source")
            if source is not None:
                return self._put_from_url(request, source)
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP
        }
        if request.body or request.method in {"PUT", "POST"}:
            headers["Content-Length"] = str(len(request.body))
        while True:
            connection, is_fresh = self._take_connection()
            try:
                connection.request(request.method, request.target, request.body or None, headers)
                response = connection.getresponse()
                body = response.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                if is_fresh:  # others Azurite may have closed meanwhile
                    raise
            else:
                self._idle.append(connection)
                break
        kept = {
            name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP
        }
        if request.method == "HEAD":
            kept["Content-Length"] = response.getheader("Content-Length") or "0"
        return Reply(status=response.status, body=body, headers=kept)

    def _put_from_url(self, request: Request, source: str) -> Reply:
        """Put Blob From URL, which Azurite does not have: reads the source by the SAS in its URL."""
        parts = urlsplit(source)
        if not self.knows(parts.netloc) or "sig=" not in parts.query:
            return blob_refusal(404, "CannotVerifyCopySource", "The source cannot be read.")
        found = self._clients[parts.netloc.removesuffix(SUFFIX)].get_blob_client(
            *unquote(parts.path).lstrip("/").split("/", 1)
        )
        if not found.exists():
            return blob_refusal(404, "CannotVerifyCopySource", "The source does not exist.")
        content = found.download_blob().readall()
        md5 = hashlib.md5(content, usedforsecurity=False).digest()
        if request.headers.get("x-ms-source-content-md5") != base64.b64encode(md5).decode():
            return blob_refusal(400, "Md5Mismatch", "The MD5 of the source is another one.")
        target = self._clients[request.host.removesuffix(SUFFIX)].get_blob_client(
            *unquote(request.path).lstrip("/").split("/", 1)
        )
        settings = ContentSettings(content_md5=bytearray(md5))
        made = target.upload_blob(content, overwrite=True, content_settings=settings)
        headers = {"ETag": made["etag"], "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        return Reply(status=201, body=b"", headers=headers)

    def _take_connection(self) -> tuple[http.client.HTTPSConnection, bool]:
        """One that is idle, or a new one, and whether it is new."""
        try:
            return self._idle.pop(), False
        except IndexError:
            context = ssl.create_default_context(cafile=self._trusted)
            made = http.client.HTTPSConnection("127.0.0.1", self._port, context=context)
            return made, True

    def upload_tree(self, folder: Path, account: str, container: str, prefix: str) -> None:
        """Put all files of a folder under a prefix."""
        client = self.container(account, container)
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            name = f"{prefix.rstrip('/')}/{path.relative_to(folder).as_posix()}".lstrip("/")
            client.upload_blob(name, path.read_bytes(), overwrite=True)

    def download_tree(self, account: str, container: str, prefix: str, into: Path) -> list[str]:
        """Get all blobs under a prefix (or the one of that name); what came."""
        client = self.open(account, container)
        found = []
        for name in self.names(account, container, prefix):
            inner = name[len(prefix) :].lstrip("/") or name.rpartition("/")[2]
            path = into / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.download_blob(name).readall())
            found.append(inner)
        return found

    def names(self, account: str, container: str, prefix: str = "") -> Iterator[str]:
        """The blobs of that name or in that folder."""
        for blob in self.open(account, container).list_blobs(name_starts_with=prefix or None):
            rest = blob.name[len(prefix) :]
            if not prefix or not rest or prefix.endswith("/") or rest.startswith("/"):
                yield blob.name
