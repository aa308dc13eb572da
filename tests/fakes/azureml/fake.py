"""Puts the stand-in together: starts it, says how to reach it, keeps every request."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from tests.fakes.azureml.arm import HOST, Assets, Metadata, Workspace
from tests.fakes.azureml.blobs import Blobs, blob_refusal
from tests.fakes.azureml.certificates import Authority
from tests.fakes.azureml.computes import Computes
from tests.fakes.azureml.history import Discovery, History
from tests.fakes.azureml.jobs import Jobs
from tests.fakes.azureml.messages import Refusal, Reply, Request, Service
from tests.fakes.azureml.prices import PRICES, Prices
from tests.fakes.azureml.proxy import Proxy
from tests.fakes.azureml.records import SIZES, Cluster, Job, Place, Records, seconds_of
from tests.fakes.azureml.registry import Registry
from tests.fakes.azureml.runner import Runner, Settings
from tests.fakes.azureml.snapshots import Artifacts, Execution, OldAddresses, Snapshots
from tests.fakes.azureml.subscription import Subscription
from tests.fakes.azureml.tokens import LOGIN, STORAGE, Tokens
from tests.fakes.azureml.troubles import Trouble, Troubles, befall
from tests.fakes.azureml.vault import Vault
from tests.fakes.deviations import Deviation

PROJECT = Path(__file__).parents[3]
IDENTITY, SENDER = "/identity", "/sender"
# Of longer bodies (a blob's blocks) only the request is remembered.
LONGEST_BODY = 64 << 10
LOOPBACK = "127.0.0.1,localhost"


class FakeAzure(AbstractContextManager["FakeAzure"]):
    """An Azure ML workspace on loopback, for as long as the context; see the package.

    `runtimes` maps a part of an image's name to the interpreter that stands for the image;
    `datastores` says whether clients get an account key. `flush_s` is how often logs reach the
    storage, `stage_s` how long each state before and after running lasts, `grace_s` the time
    between SIGTERM and SIGKILL, `log_digits` the least number of digits of a rank in a log's name,
    `place` what all is called.
    """

    def __init__(
        self,
        folder: Path,
        *,
        runtimes: Mapping[str, Path],
        datastores: Literal["identity", "account key"] = "identity",
        flush_s: float = 0.2,
        stage_s: float = 0.05,
        grace_s: float = 120.0,
        log_digits: int = 1,
        place: Place | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.place = place = place or Place()
        self.records = Records(place)
        self.troubles = Troubles()
        self.tokens = Tokens(
            tenant_id=place.tenant_id,
            client_id=place.client_id,
            cluster_client_id=place.cluster_client_id,
        )
        self.authority = Authority(_made(folder / "certificates"))
        accounts = (place.workspace_account, place.data_account)
        self.blobs = Blobs(folder / "blobs", self.authority, accounts, program=_azurite())
        self.vault = Vault(self.tokens)
        self.vault.deviations = self.records.deviations
        self.defects: list[Exception] = []
        self._requests: list[Request] = []
        self._proxy = Proxy(self.authority, self._answer, self._knows)
        settings = Settings(
            runtimes=runtimes,
            routing=self._routing(),
            cluster_identity=self._node_identity(),
            sender_identity={"OBO_ENDPOINT": f"http://127.0.0.1:{self._proxy.port}{SENDER}"},
            flush_s=flush_s,
            stage_s=stage_s,
            grace_s=grace_s,
            log_digits=log_digits,
        )
        self._runner = Runner(
            _made(folder / "jobs"), self.records, self.blobs, self.troubles, settings
        )
        self._services = self._make_services()
        self._lock = threading.Lock()
        self._datastores = datastores
        self._declare(datastores)

    # --- For tests ----------------------------------------------------------------------------

    @property
    def environ(self) -> dict[str, str]:
        """What a program needs to reach this Azure by its real names, and to be let in."""
        home = _made(self.folder / "home")
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "AZURE_CONFIG_DIR": str(home / ".azure"),
            "AZURE_TENANT_ID": self.place.tenant_id,
            "AZURE_CLIENT_ID": self.place.client_id,
            "AZURE_CLIENT_SECRET": self.tokens.client_secret,
            **self._routing(),
        }

    def environment(self, *, images: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What a stack's output `environment` would say of it (schema 1)."""
        place = self.place
        clusters = {
            name.rpartition("-")[0] or name: self._cluster_output(each)
            for name, each in self.records.clusters.items()
        }
        return {
            "schema": 1,
            "stack": "dev",
            "engine": "azureml",
            "location": place.location,
            "subscription_id": place.subscription_id,
            "resource_group": place.resource_group,
            "workspace": {
                "name": place.workspace,
                "id": place.workspace_id,
                "endpoint": f"https://{self.records.api}",
            },
            "storage": {
                "account": place.data_account,
                "blob_endpoint": f"https://{place.data_account}.blob.core.windows.net",
                "containers": {"data": "data", "runs": "runs"},
            },
            "registry": {"login_server": f"{place.registry}.azurecr.io"},
            "key_vault": {"uri": f"https://{place.key_vault}.vault.azure.net/"},
            "clusters": clusters,
            "images": dict(images or {}),
        }

    @property
    def deviations(self) -> set[Deviation]:
        """The differences from what is expected that are on; add to it, or remove."""
        return self.records.deviations

    def requests(self, *, host: str = "", method: str = "", path: str = "") -> list[Request]:
        """Those seen so far; `host` and `path` are parts to be found."""
        with self._lock:
            return [
                each
                for each in self._requests
                if host in each.host and method in {"", each.method} and path in each.path
            ]

    def script(self, *troubles: Trouble) -> None:
        """Let these go wrong from now on."""
        self.troubles.add(*troubles)

    def job(self, name: str) -> Job:
        return self.records.jobs[name]

    def wait(self, name: str, *, timeout_s: float = 300.0) -> Job:
        """Block until a job is over."""
        job = self.records.jobs[name]
        assert job.over.wait(timeout_s), f"{name} is still {job.state}"
        return job

    def forget(self) -> None:
        """Begin anew, as if nobody had asked for anything: what runs is cancelled first.

        The addresses, certificates and keys stay, and so does what has gone wrong in here.
        """
        self._runner.stop()
        self.troubles.clear()
        self.tokens.forget()
        self.vault.forget()
        self.records.forget()
        with self._lock:
            self._requests.clear()
        for name in ("home", "jobs"):
            shutil.rmtree(_made(self.folder / name))
            _made(self.folder / name)
        self.blobs.delete_all()
        self._services = self._make_services()
        self._declare(self._datastores)
        self._make_containers()

    def delete_workspace(self) -> None:
        self.records.is_workspace_deleted = True

    def add_cluster(
        self,
        name: str,
        *,
        size: str = "Standard_DS3_v2",
        priority: Literal["Dedicated", "LowPriority"] = "Dedicated",
        max_nodes: int = 2,
        idle_s: int = 120,
    ) -> Cluster:
        """An AmlCompute as the stacks declare one."""
        identity = {self.place.cluster_identity_id: {}}
        made = Cluster(
            name,
            {
                "location": self.place.location,
                "tags": {"project": "trainyard"},
                "identity": {"type": "UserAssigned", "userAssignedIdentities": identity},
                "properties": {
                    "computeType": "AmlCompute",
                    "disableLocalAuth": True,
                    "properties": {
                        "vmSize": size,
                        "vmPriority": priority,
                        "osType": "Linux",
                        "enableNodePublicIp": False,
                        "isolatedNetwork": False,
                        "remoteLoginPortPublicAccess": "Disabled",
                        "scaleSettings": {
                            "minNodeCount": 0,
                            "maxNodeCount": max_nodes,
                            "nodeIdleTimeBeforeScaleDown": f"PT{idle_s}S",
                        },
                    },
                },
            },
        )
        self.records.clusters[name] = made
        return made

    # --- Running ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.blobs.start()
        self._make_containers()
        self._proxy.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._runner.stop()
        self._proxy.stop()
        self.blobs.stop()
        defects = [*self.defects, *self._runner.defects]
        if defects and kind is None:
            message = "the stand-in could not answer"
            raise ExceptionGroup(message, defects)

    def _declare(self, datastores: str) -> None:
        place = self.place
        stores = {
            "workspaceblobstore": (
                place.workspace_account,
                f"azureml-blobstore-{place.workspace_guid}",
            ),
            "workspaceartifactstore": (place.workspace_account, "azureml"),
            "data": (place.data_account, "data"),
            "runs": (place.data_account, "runs"),
        }
        kind = "None" if datastores == "identity" else "AccountKey"
        for name, (account, container) in stores.items():
            self.records.datastores[name] = {
                "datastoreType": "AzureBlob",
                "accountName": account,
                "containerName": container,
                "endpoint": "core.windows.net",
                "protocol": "https",
                "subscriptionId": place.subscription_id,
                "resourceGroup": place.resource_group,
                "isDefault": name == "workspaceblobstore",
                "serviceDataAccessAuthIdentity": "None",
                "credentials": {"credentialsType": kind},
                "tags": {},
                "properties": {},
            }
        blobs = self.records.datastores["workspaceblobstore"]
        for name, share in (
            ("workspacefilestore", f"azureml-filestore-{place.workspace_guid}"),
            ("workspaceworkingdirectory", "code-391ff5ac-6576-460f-ba4d-7e03433c68b6"),
        ):
            kept = {key: each for key, each in blobs.items() if key != "containerName"}
            kept |= {"datastoreType": "AzureFile", "fileShareName": share, "isDefault": False}
            self.records.datastores[name] = kept
        self.add_cluster("cpu-1a2b3c", max_nodes=2)

    def _make_containers(self) -> None:
        for store in self.records.datastores.values():
            if store["datastoreType"] == "AzureBlob":
                self.blobs.container(store["accountName"], store["containerName"])

    def _make_services(self) -> dict[str, list[Service]]:
        """Who answers for which host, in this order."""
        common = (self.records, self.tokens, self.blobs)
        own: list[Service] = [
            Discovery(),
            History(*common),
            Snapshots(*common),
            Execution(*common, self._runner.start),
            Artifacts(*common),
            OldAddresses(*common),
        ]
        return {
            LOGIN: [self.tokens],
            HOST: [
                Metadata(),
                Workspace(*common),
                Assets(*common),
                Computes(*common),
                Jobs(*common, self._runner.start),
                Subscription(*common),
            ],
            self.place.api: own,
            self.place.private_api: own,
            PRICES: [Prices()],
            f"{self.place.key_vault}.vault.azure.net": [self.vault],
            self.records.registry_address: [Registry()],
        }

    def _routing(self) -> dict[str, str]:
        proxy, trusted = f"http://127.0.0.1:{self._proxy.port}", str(self.authority.certificate)
        return {
            "HTTPS_PROXY": proxy,
            "https_proxy": proxy,
            "NO_PROXY": LOOPBACK,
            "no_proxy": LOOPBACK,
            "REQUESTS_CA_BUNDLE": trusted,
            "SSL_CERT_FILE": trusted,
        }

    def _node_identity(self) -> dict[str, str]:
        endpoint = f"http://127.0.0.1:{self._proxy.port}{IDENTITY}"
        return {"MSI_ENDPOINT": endpoint, "MSI_SECRET": self.tokens.node_secret}

    def _cluster_output(self, cluster: Cluster) -> dict[str, Any]:
        size, scale = SIZES[cluster.properties["vmSize"]], cluster.scale
        return {
            "compute": cluster.name,
            "size": size.name,
            "gpus_per_node": size.num_gpus,
            "cpus_per_node": size.num_vcpus,
            "processes_per_node": size.num_gpus or 1,
            "rdma": False,
            "priority": "dedicated" if cluster.is_dedicated else "low_priority",
            "min_nodes": scale["minNodeCount"],
            "max_nodes": scale["maxNodeCount"],
            "idle_s": int(seconds_of(scale["nodeIdleTimeBeforeScaleDown"])),
            "price_per_node_hour": None,
            "currency": None,
            "family": size.family,
            "price_as_of": None,
        }

    def _knows(self, host: str) -> bool:
        return host in self._services or self.blobs.knows(host)

    def _answer(self, request: Request) -> Reply:
        with self._lock:
            keep = len(request.body) <= LONGEST_BODY
            self._requests.append(request if keep else replace(request, body=b""))
        trouble = self.troubles.of_request(request)
        early = befall(trouble, request) if trouble else None
        reply = early or self._carry_out(request)
        return Reply(drop=True) if trouble and trouble.drop == "after" else reply

    def _carry_out(self, request: Request) -> Reply:
        try:
            if request.host == "127.0.0.1" and request.path == IDENTITY:
                if Deviation.NO_NODE_IDENTITY in self.deviations:
                    raise Refusal(400, "BadRequest", "Identity not found")
                return self.tokens.identity(request)
            if request.host == "127.0.0.1" and request.path == SENDER:
                return self.tokens.sender(request)
            if self.blobs.knows(request.host):
                return self._pass_on(request)
            for service in self._services[request.host]:
                reply = service.handle(request)
                if reply is not None:
                    return reply
            message = f"The stand-in has no answer to {request.method} {request.target}"
            raise Refusal(404, "ResourceNotFound", message)
        except Refusal as refusal:
            return refusal.reply()
        except Exception as error:  # noqa: BLE001  a defect of the stand-in: told at its end
            self.defects.append(error)
            return Refusal(500, "StandInDefect", repr(error)).reply()

    def _pass_on(self, request: Request) -> Reply:
        """Azurite reads a token's dates alone, and knows no accounts without public access."""
        if not (request.headers.get("Authorization") or {"sig", "si"} & request.query.keys()):
            message = "Public access is not permitted on this storage account."
            return blob_refusal(409, "PublicAccessNotPermitted", message)
        if request.headers.get("Authorization", "").startswith("Bearer "):
            try:
                client = self.tokens.check(request, {STORAGE})
            except Refusal as refusal:
                message = "Server failed to authenticate the request."
                challenge = {"WWW-Authenticate": refusal.headers["WWW-Authenticate"]}
                return blob_refusal(401, "InvalidAuthenticationInfo", message, challenge)
            if self._lacks_role(request, client):
                message = "This request is not authorized to perform this operation using this "
                return blob_refusal(403, "AuthorizationPermissionMismatch", f"{message}permission.")
        return self.blobs.handle(request)

    def _lacks_role(self, request: Request, client: str) -> bool:
        """Whether a deviation keeps who asks from the account of our data."""
        if not request.host.startswith(f"{self.place.data_account}."):
            return False
        if client == self.place.cluster_client_id:
            is_range = "Range" in request.headers or "x-ms-range" in request.headers
            return is_range and Deviation.STREAM_REFUSED in self.deviations
        return Deviation.DATA_ROLE_MISSING in self.deviations


def _azurite() -> list[str]:
    """The command that starts Azurite, as set-up has noted it."""
    tools = json.loads((PROJECT / ".trainyard" / "tools.json").read_text())
    return [tools["node"], tools["azurite"]]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
