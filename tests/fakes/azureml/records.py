"""What the stand-in remembers: the names of the place, its clusters with their nodes, its jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from tests.fakes.deviations import Deviation

TERMINAL = frozenset({"Completed", "Failed", "Canceled"})
# All that a job of the stand-in can be in.
STATES = TERMINAL | {
    *("NotStarted", "Starting", "Preparing", "Queued", "Running", "Finalizing", "CancelRequested")
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """The subscription's names and ids."""

    subscription_id: str = "5b1c7d1e-0000-4000-8000-0000000a3171"
    tenant_id: str = "7e4a11d0-0000-4000-8000-0000000a3171"
    client_id: str = "c11e4700-0000-4000-8000-0000000a3171"
    cluster_client_id: str = "c1057e40-0000-4000-8000-0000000a3171"
    workspace_guid: str = "3a9e1c70-0000-4000-8000-0000000a3171"
    resource_group: str = "rg-trainyard-dev"
    workspace: str = "mlw-trainyard-dev"
    location: str = "westeurope"
    workspace_account: str = "tydevworkspace"
    data_account: str = "tydevdata"
    registry: str = "tydevregistry"
    key_vault: str = "tydevvault"

    @property
    def group_id(self) -> str:
        return f"/subscriptions/{self.subscription_id}/resourceGroups/{self.resource_group}"

    @property
    def workspace_id(self) -> str:
        providers = "providers/Microsoft.MachineLearningServices"
        return f"{self.group_id}/{providers}/workspaces/{self.workspace}"

    @property
    def api(self) -> str:
        return f"{self.location}.api.azureml.ms"

    @property
    def private_api(self) -> str:
        """The host of a private workspace: learn.microsoft.com, how-to-custom-dns."""
        return f"{self.workspace_guid}.workspace.{self.api}"

    @property
    def cluster_identity_id(self) -> str:
        providers = "providers/Microsoft.ManagedIdentity/userAssignedIdentities"
        return f"{self.group_id}/{providers}/id-trainyard-dev-cluster"


@dataclass(frozen=True, kw_only=True)
class Size:
    """A VM size as the region's list tells it; prices in USD an hour."""

    name: str
    family: str
    label: str  # of the family, in the names of quotas
    num_vcpus: int
    num_gpus: int
    memory_gb: float
    price: float
    low_priority_price: float


SIZES = {
    size.name: size
    for size in (
        Size(
            name="Standard_DS3_v2",
            family="standardDSv2Family",
            label="Standard DSv2 Family",
            num_vcpus=4,
            num_gpus=0,
            memory_gb=14,
            price=0.27,
            low_priority_price=0.054,
        ),
        Size(
            name="Standard_NC24ads_A100_v4",
            family="standardNCADSA100v4Family",
            label="Standard NCADSA100v4 Family",
            num_vcpus=24,
            num_gpus=1,
            memory_gb=220,
            price=4.775,
            low_priority_price=0.955,
        ),
        # Those of tools/prove_azure.
        Size(
            name="Standard_D4ds_v4",
            family="standardDDSv4Family",
            label="Standard DDSv4 Family",
            num_vcpus=4,
            num_gpus=0,
            memory_gb=16,
            price=0.272,
            low_priority_price=0.054,
        ),
        Size(
            name="Standard_D2ds_v4",
            family="standardDDSv4Family",
            label="Standard DDSv4 Family",
            num_vcpus=2,
            num_gpus=0,
            memory_gb=8,
            price=0.136,
            low_priority_price=0.027,
        ),
        Size(
            name="Standard_NC4as_T4_v3",
            family="standard NCASv3_T4 Family",
            label="Standard NCASv3_T4 Family",
            num_vcpus=4,
            num_gpus=1,
            memory_gb=28,
            price=0.658,
            low_priority_price=0.132,
        ),
    )
}


@dataclass(kw_only=True)
class Node:
    """A machine of a cluster: idle, running, preparing, leaving, unusable or preempted."""

    number: int
    state: str = "idle"
    run: str | None = None
    since_s: float = field(default_factory=time.monotonic)

    @property
    def address(self) -> str:
        return f"10.0.0.{4 + self.number}"


class Cluster:
    """An AmlCompute: its nodes come and go between the minimum and the maximum."""

    def __init__(self, name: str, body: dict[str, Any]) -> None:
        self.name = name
        self.body = body
        self.nodes: list[Node] = []
        self.created = now()
        self.modified = self.created
        self._next = 0
        self.errors: list[dict[str, Any]] = []

    @property
    def properties(self) -> dict[str, Any]:
        return self.body["properties"]["properties"]

    @property
    def size(self) -> Size:
        return SIZES[self.properties["vmSize"]]

    @property
    def is_dedicated(self) -> bool:
        return self.properties.get("vmPriority", "Dedicated") == "Dedicated"

    @property
    def scale(self) -> dict[str, Any]:
        return self.properties["scaleSettings"]

    def settle(self) -> None:
        """Start what the minimum asks for; send home what has idled too long, above it."""
        minimum, maximum = self.scale.get("minNodeCount") or 0, self.scale["maxNodeCount"]
        idle_s = seconds_of(self.scale.get("nodeIdleTimeBeforeScaleDown") or "PT120S")
        for node in [each for each in self.nodes if each.state == "idle"][::-1]:
            has_idled = time.monotonic() - node.since_s > idle_s
            if len(self.nodes) > maximum or (len(self.nodes) > minimum and has_idled):
                self.nodes.remove(node)
        while len(self.nodes) < minimum:
            self.add()

    def add(self) -> Node:
        node = Node(number=self._next)
        self._next += 1
        self.nodes.append(node)
        return node

    def take(self, num_nodes: int, run: str) -> list[Node] | None:
        """Nodes for a run, as soon as so many are free or can be started."""
        self.settle()
        free = [node for node in self.nodes if node.state == "idle"]
        while len(free) < num_nodes and len(self.nodes) < self.scale["maxNodeCount"]:
            free.append(self.add())
        if len(free) < num_nodes:
            return None
        for node in free[:num_nodes]:
            node.state, node.run = "running", run
        return free[:num_nodes]

    def give_back(self, run: str) -> None:
        for node in self.nodes:
            if node.run == run:
                node.run, node.since_s = None, time.monotonic()
                node.state = "idle" if node.state == "running" else node.state

    def lose(self, node: Node) -> None:
        """A node that Azure takes away."""
        if node in self.nodes:
            self.nodes.remove(node)


@dataclass(kw_only=True)
class Job:
    """A job, however it was submitted; `spec` is what the runner needs of it."""

    name: str
    number: int
    body: dict[str, Any]  # the properties of its PUT; empty for v1
    spec: Any = None
    run_configuration: dict[str, Any] | None = None  # of v1
    experiment: str = "Default"
    state: str = "NotStarted"
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: datetime | None = None
    ended: datetime | None = None
    error: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=lambda: ["NotStarted"])
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    cancel: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    nodes: list[Node] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL

    @property
    def prefix(self) -> str:
        return f"ExperimentRun/dcid.{self.name}/"

    def enter(self, state: str) -> None:
        assert state in STATES, state
        if state == "Running" and self.started is None:
            self.started = now()
        if state in TERMINAL:
            self.ended = now()
        self.state = state
        self.states.append(state)
        if state in TERMINAL:
            self.over.set()

    def fail(self, code: str, message: str) -> None:
        self.error = {
            "error": {
                "code": code,
                "message": message,
                "messageFormat": "{Message}",
                "messageParameters": {"Message": message},
                "details": [],
                "innerError": None,
            },
            "environment": None,
            "location": None,
            "time": iso(now()),
        }
        self.enter("Failed")


class Records:
    """All of it, behind one lock."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lock = threading.RLock()
        self.deviations: set[Deviation] = set()
        self.forget()

    def forget(self) -> None:
        """Begin anew, with nothing there; `deviations` and `lock` stay who they are."""
        self.deviations.clear()
        self.jobs: dict[str, Job] = {}
        self.clusters: dict[str, Cluster] = {}
        self.datastores: dict[str, dict[str, Any]] = {}
        self.codes: dict[tuple[str, str], dict[str, Any]] = {}
        self.environments: dict[tuple[str, str], dict[str, Any]] = {}
        self.data: dict[tuple[str, str], dict[str, Any]] = {}
        self.models: dict[tuple[str, str], dict[str, Any]] = {}
        # Requests to the registry to import an image.
        self.imported: list[dict[str, Any]] = []
        # By the quota's name: of the subscription, and the share of our workspace (-1: no own one).
        self.limits: dict[str, int] = {}
        self.workspace_limits: dict[str, int] = {}
        self.family_names: Literal["whole", "short"] = "whole"
        self.is_workspace_deleted = False
        # As Resource Manager lists them.
        self.role_assignments: list[dict[str, Any]] = []
        self.private_endpoints: list[dict[str, Any]] = []
        self.registry_address = f"{self.place.registry}.azurecr.io"

    @property
    def api(self) -> str:
        """The host that the workspace says it is at."""
        is_untold = Deviation.PRIVATE_HOST_UNTOLD in self.deviations
        return self.place.private_api if self.is_private and not is_untold else self.place.api

    @property
    def is_private(self) -> bool:
        """Whether only the workspace's own host answers."""
        private = {Deviation.PRIVATE_HOST_ONLY, Deviation.PRIVATE_HOST_UNTOLD}
        return not private.isdisjoint(self.deviations)

    def jobs_newest_first(self) -> Iterator[Job]:
        with self.lock:
            return reversed(list(self.jobs.values()))

    def add_past_jobs(self, num_jobs: int, *, compute: str) -> None:
        """Jobs that have ended long ago: no log, no blob."""
        with self.lock:
            for number in range(num_jobs):
                name = f"past-{number:05d}"
                job = Job(name=name, number=len(self.jobs) + 1, body={}, experiment="past")
                job.body = {
                    "jobType": "Command",
                    "command": "true",
                    "computeId": f"{self.place.workspace_id}/computes/{compute}",
                    "environmentId": "azureml://registries/azureml/environments/none/versions/1",
                    "experimentName": "past",
                    "tags": {},
                    "properties": {},
                    "resources": {"instanceCount": 1},
                }
                job.enter("Running")
                job.enter("Completed")
                self.jobs[name] = job


def now() -> datetime:
    return datetime.now(UTC)


def iso(when: datetime | None) -> str | None:
    return None if when is None else when.strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"


def seconds_of(duration: str) -> float:
    """`PT2M`, `P1DT30S`, as Azure writes durations."""
    import isodate

    return isodate.parse_duration(duration).total_seconds()


def system_data(created: datetime) -> dict[str, Any]:
    who = {"createdBy": "stand-in", "createdByType": "Application"}
    return {**who, "createdAt": iso(created), "lastModifiedAt": iso(created)}
