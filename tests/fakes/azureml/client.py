"""A bare client of the stand-in, for tests that speak to it as no SDK would."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import requests
from azure.core.exceptions import ResourceNotFoundError

from tests.busy import wait_until
from tests.fakes.azureml.fake import FakeAzure

API_VERSION = "2025-01-01-preview"


class Client:
    """Requests below the workspace, with a good token, through the proxy."""

    def __init__(self, azure: FakeAzure) -> None:
        self.azure = azure
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.proxies = {"https": azure.environ["HTTPS_PROXY"]}
        self.session.verify = azure.environ["SSL_CERT_FILE"]
        self.authorize()

    def authorize(self) -> None:
        token = self.azure.tokens.give("https://management.azure.com")
        self.session.headers["Authorization"] = f"Bearer {token}"

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> requests.Response:
        """A request of `management.azure.com`; `path` is below the workspace."""
        address = f"https://management.azure.com{self.azure.place.workspace_id}{path}"
        query = {"api-version": API_VERSION, **query}
        return self.session.request(method, address, json=body, params=query)

    def put_code(self, files: Mapping[str, str]) -> str:
        """The id of a version of code with these files."""
        path = f"/codes/{uuid.uuid4()}/versions/1"
        begun = self.ask("POST", f"{path}/startPendingUpload", {})
        where = begun.json()["blobReferenceForConsumption"]
        address, _, sas = where["credential"]["sasUri"].partition("?")
        for inner, content in files.items():
            headers = {"x-ms-blob-type": "BlockBlob", "Authorization": None}
            url = f"{address}/{inner}?{sas}"
            sent = self.session.put(url, content.encode(), headers=headers)
            assert sent.status_code == 201, sent.text
        made = self.ask("PUT", path, {"properties": {"codeUri": where["blobUri"]}})
        return made.json()["id"]

    def put_environment(self, image: str) -> str:
        name = hashlib.sha256(image.encode()).hexdigest()[:16]
        body = {"properties": {"image": image}}
        return self.ask("PUT", f"/environments/{name}/versions/1", body).json()["id"]

    def job(self, command: str, *, image: str = "python:3", **properties: Any) -> dict[str, Any]:
        """The body of a job of one process, or as `properties` say."""
        compute = f"{self.azure.place.workspace_id}/computes/cpu-1a2b3c"
        return {
            "properties": {
                "jobType": "Command",
                "command": command,
                "environmentId": self.put_environment(image),
                "computeId": compute,
                **properties,
            }
        }

    def submit(self, name: str, command: str, **properties: Any) -> None:
        made = self.ask("PUT", f"/jobs/{name}", self.job(command, **properties))
        assert made.status_code == 201, made.text

    def log(self, name: str, log: str) -> str:
        """A log as it lies in the storage."""
        container = self.azure.blobs.open(self.azure.place.workspace_account, "azureml")
        blob = container.get_blob_client(f"ExperimentRun/dcid.{name}/{log}")
        return blob.download_blob().readall().decode()

    def has_log(self, name: str) -> bool:
        """Whether a job of one process has a log, be it empty."""
        prefix = f"ExperimentRun/dcid.{name}/user_logs/std_log.txt"
        account = self.azure.place.workspace_account
        return prefix in set(self.azure.blobs.names(account, "azureml", prefix))

    def log_so_far(self, name: str) -> str:
        """The log of a job of one process; empty before there is one."""
        try:
            return self.log(name, "user_logs/std_log.txt")
        except ResourceNotFoundError:
            return ""

    def error(self, name: str) -> tuple[str, str]:
        """Code and message of a job that failed, at its end."""
        error = self.azure.wait(name).error
        assert error is not None
        return error["error"]["code"], error["error"]["message"]


def wait_for(is_so: Callable[[], bool]) -> None:
    """Block until this holds."""
    wait_until(is_so, 200)
