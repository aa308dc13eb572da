"""azureml-core's way of submitting: snapshots of code, run configurations, artifacts, old addresses."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from tests.fakes.azureml.arm import ArmService
from tests.fakes.azureml.blobs import Blobs
from tests.fakes.azureml.computes import show_cluster
from tests.fakes.azureml.history import WS
from tests.fakes.azureml.messages import Refusal, Reply, Request, answer, on
from tests.fakes.azureml.records import Job, Records
from tests.fakes.azureml.shipping import ARTIFACTS
from tests.fakes.azureml.specs import Launch, Link, Spec
from tests.fakes.azureml.tokens import Tokens

SNAPSHOTS = "snapshots"
CONTENT = "/content/{api}" + WS + "/snapshots"
FOREVER_S = 2592000
_MODES = {"mount": "ReadOnlyMount", "download": "Download"}


class Snapshots(ArmService):
    """Code: files come one by one, a snapshot is the tree of them."""

    def __init__(self, records: Records, tokens: Tokens, blobs: Blobs) -> None:
        super().__init__(records, tokens, blobs)
        self._trees: dict[str, dict[str, str]] = {}  # snapshot -> path -> blob
        self._latest: dict[str, Any] = {"id": str(uuid.UUID(int=0)), "root": _no_files()}

    @on("GET", CONTENT + "/latest/metadata")
    def latest(self, request: Request, **_: str) -> Reply:
        return answer(self._latest)

    @on("POST", CONTENT + "/getblob")
    def get_blobs(self, request: Request, **_: str) -> Reply:
        account, upload = self.place.workspace_account, uuid.uuid4()
        self.blobs.container(account, SNAPSHOTS)
        nodes = [
            {
                "fullName": name,
                "blobUri": self.blobs.sas(account, SNAPSHOTS, "rcw", f"uploads/{upload}/{name}"),
            }
            for name in request.json["FileNames"]
        ]
        return answer({"fileNodes": nodes})

    @on("POST", CONTENT + "/{snapshot}")
    def create(self, request: Request, snapshot: str, **_: str) -> Reply:
        """Lay the whole tree under the snapshot's own prefix."""
        body, container = request.json, self.blobs.open(self.place.workspace_account, SNAPSHOTS)
        sent = {
            each["FullName"]: each["BlobUri"].partition("?")[0].partition(f"/{SNAPSHOTS}/")[2]
            for each in body["FileRevisionList"]["FileNodes"]
        }
        known = self._trees.get(body["ParentSnapshotId"] or "", {})
        self._trees[snapshot] = {}
        for path in _files(body["DirTreeNode"]):
            source = sent.get(path) or known.get(path)
            if source is None:
                raise Refusal(400, "UserError", f"Snapshot file {path} was not uploaded.")
            content = container.download_blob(source).readall()
            container.upload_blob(f"{snapshot}/{path}", content, overwrite=True)
            self._trees[snapshot][path] = f"{snapshot}/{path}"
        self._latest = {"id": snapshot, "root": body["DirTreeNode"]}
        return answer({"id": snapshot, "root": body["DirTreeNode"]})


class Execution(ArmService):
    """Runs by configuration; a run id that is taken is refused."""

    def __init__(
        self, records: Records, tokens: Tokens, blobs: Blobs, start: Callable[[Job], None]
    ) -> None:
        super().__init__(records, tokens, blobs)
        self._start = start

    @on("POST", "/execution/v1.0" + WS + "/experiments/{experiment}/snapshotrun")
    def snapshot_run(self, request: Request, experiment: str, **_: str) -> Reply:
        name = request.query.get("runId") or f"{experiment}_{uuid.uuid4().hex[:8]}"
        if name in self.records.jobs:
            raise Refusal(409, "UserError", f"Run {name} already exists.")
        body = {key.lower(): each for key, each in request.json.items()}
        configuration = body["configuration"]
        spec = self._spec(configuration, body["snapshotid"])
        job = Job(
            name=name,
            number=len(self.records.jobs) + 1,
            body={},
            spec=spec,
            run_configuration=configuration,
            experiment=experiment,
        )
        self.records.jobs[name] = job
        self._start(job)
        return answer({"runId": name})

    def _spec(self, configuration: dict[str, Any], snapshot: str) -> Spec:
        target = configuration["target"]
        if target not in self.records.clusters:
            raise Refusal(400, "UserError", f"Compute target {target} was not found.")
        environment = configuration["environment"]
        image = environment["docker"].get("baseImage") or ""
        variables = {
            **(environment.get("environmentVariables") or {}),
            **(configuration.get("environmentVariables") or {}),
        }
        lasts_s = configuration.get("maxRunDurationSeconds") or FOREVER_S
        return Spec(
            command=_command(configuration),
            code=Link(
                account=self.place.workspace_account,
                container=SNAPSHOTS,
                path=snapshot,
                uri=f"snapshot:{snapshot}",
            ),
            image=image,
            build=None,
            cluster=target,
            num_nodes=configuration.get("nodeCount") or 1,
            launch=_launch(configuration),
            env={key: str(each) for key, each in variables.items()},
            inputs={
                name: self._link(each["dataLocation"], _MODES[each["mechanism"]])
                for name, each in (configuration.get("data") or {}).items()
            },
            outputs={
                name: self._link(each["outputLocation"], "ReadWriteMount")
                for name, each in (configuration.get("outputData") or {}).items()
            },
            timeout_s=None if lasts_s == FOREVER_S else float(lasts_s),
        )

    def _link(self, location: dict[str, Any], mode: str) -> Link:
        """A folder of a datastore; datasets of the first API are none of this stand-in."""
        place = location["dataPath"]
        store = self.records.datastores.get(place["datastoreName"])
        if store is None:
            text = f"Datastore {place['datastoreName']} was not found."
            raise Refusal(400, "UserError", text)
        path = place["relativePath"].strip("/")
        return Link(
            account=store["accountName"],
            container=store["containerName"],
            path=path,
            uri=f"azureml://datastores/{place['datastoreName']}/paths/{path}",
            mode=mode,
        )


class Artifacts(ArmService):
    """Files of a run by name, each with an address that opens for reading."""

    @on("GET", "/artifact/v2.0" + WS + "/artifacts/prefix/contentinfo/{origin}/{container}/{path*}")
    @on("GET", "/artifact/v2.0" + WS + "/artifacts/prefix/contentinfo/{origin}/{container}")
    def by_prefix(
        self, request: Request, origin: str, container: str, path: str = "", **_: str
    ) -> Reply:
        path = path or request.query.get("path", "")
        found = self._list(container, path)
        return answer({"value": [self._with_address(each, container) for each in found]})

    @on("GET", "/artifact/v2.0" + WS + "/artifacts/contentinfo/{origin}/{container}/{path*}")
    def one(self, request: Request, container: str, path: str, **_: str) -> Reply:
        if path not in self._list(container, path):
            raise Refusal(404, "UserError", f"Artifact {path} was not found.")
        return answer(self._with_address(path, container))

    @on("GET", "/artifact/v2.0" + WS + "/artifacts/{origin}/{container}")
    def all(self, request: Request, container: str, **_: str) -> Reply:
        found = [{"path": path, "container": container} for path in self._list(container, "")]
        return answer({"value": found})

    def _list(self, container: str, prefix: str) -> list[str]:
        root = f"ExperimentRun/{container}/"
        names = self.blobs.names(self.place.workspace_account, ARTIFACTS, root)
        return [name[len(root) :] for name in names if name[len(root) :].startswith(prefix)]

    def _with_address(self, path: str, container: str) -> dict[str, Any]:
        name = f"ExperimentRun/{container}/{path}"
        return {
            "contentUri": self.blobs.sas(self.place.workspace_account, ARTIFACTS, "r", name),
            "origin": "ExperimentRun",
            "container": container,
            "path": path,
            "tags": None,
        }


class OldAddresses(ArmService):
    """What azureml-core asks of the region's host and azure-ai-ml of Resource Manager."""

    @on("GET", "/rp/workspaces" + WS + "/computes")
    def computes(self, request: Request, **_: str) -> Reply:
        shown = [self._compute(name) for name in self.records.clusters]
        return answer({"value": shown})

    @on("GET", "/rp/workspaces" + WS + "/computes/{name}")
    def compute(self, request: Request, name: str, **_: str) -> Reply:
        if name not in self.records.clusters:
            raise Refusal(404, "ComputeTargetNotFound", f"Compute {name} was not found.")
        return answer(self._compute(name))

    @on("GET", "/datastore/v1.0" + WS + "/default")
    def default_datastore(self, request: Request, **_: str) -> Reply:
        stores = self.records.datastores
        return self._datastore(next(name for name, each in stores.items() if each["isDefault"]))

    @on("GET", "/datastore/v1.0" + WS + "/datastores/{name}")
    def datastore(self, request: Request, name: str, **_: str) -> Reply:
        if name not in self.records.datastores:
            raise Refusal(404, "UserError", f"Datastore {name} was not found.")
        return self._datastore(name)

    def _compute(self, name: str) -> dict[str, Any]:
        shown = show_cluster(self.place, self.records.clusters[name])
        shown["properties"] = {"description": "", **shown["properties"]}
        shown["properties"]["properties"] = {"subnet": None, **shown["properties"]["properties"]}
        return shown

    def _datastore(self, name: str) -> Reply:
        store = self.records.datastores[name]
        has_key = store["credentials"]["credentialsType"] == "AccountKey"
        key = self.blobs.keys[store["accountName"]] if has_key else None
        return answer(
            {
                "name": name,
                "dataStoreType": "AzureBlob",
                "azureStorageSection": {
                    "accountName": store["accountName"],
                    "containerName": store["containerName"],
                    "endpoint": store["endpoint"],
                    "protocol": store["protocol"],
                    "credentialType": "AccountKey" if has_key else "None",
                    "credential": key,
                    "isSas": False,
                    "accountKey": key,
                },
                "hasBeenValidated": True,
                "tags": {},
            }
        )


def _no_files() -> dict[str, Any]:
    return {"name": "", "type": "Directory", "timestamp": None, "hash": "", "children": {}}


def _files(node: dict[str, Any], parent: str = "") -> Iterator[str]:
    """The paths of a tree's files."""
    for name, child in node["children"].items():
        path = f"{parent}{name}"
        if child["type"] == "File":
            yield path
        else:
            yield from _files(child, f"{path}/")


def _command(configuration: dict[str, Any]) -> str:
    """What a node runs: a command line, or a script with arguments."""
    import shlex

    command = configuration.get("command")
    if command:
        text = command if isinstance(command, str) else " ".join(command)
        text = re.sub(r"DatasetConsumptionConfig:(\w+)", r"${{inputs.\1}}", text)
        return re.sub(r"DatasetOutputConfig:(\w+)", r"${{outputs.\1}}", text)
    arguments = [str(each) for each in configuration.get("arguments") or []]
    return shlex.join(["python", configuration["script"], *arguments])


def _launch(configuration: dict[str, Any]) -> Launch:
    framework, communicator = configuration.get("framework"), configuration.get("communicator")
    num_nodes = configuration.get("nodeCount") or 1
    if framework == "PyTorch":
        count = (configuration.get("pytorch") or {}).get("processCount") or num_nodes
        return Launch(kind="PyTorch", num_processes=count)
    if framework == "TensorFlow" and communicator == "ParameterServer":
        section = configuration.get("tensorflow") or {}
        return Launch(
            kind="TensorFlow",
            num_processes=section.get("workerCount") or 1,
            num_servers=section.get("parameterServerCount") or 0,
        )
    if communicator in {"IntelMpi", "OpenMpi", "Mpi"}:
        per_node = (configuration.get("mpi") or {}).get("processCountPerNode") or 1
        return Launch(kind="Mpi", num_processes=num_nodes * per_node)
    return Launch()
