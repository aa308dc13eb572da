"""Answers the requests of the provider as Azure Resource Manager would, and remembers."""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections.abc import Collection
from fnmatch import fnmatchcase

from tests.fakes.azure_native import SUBSCRIPTION_ID, TENANT_ID, refusals
from tests.fakes.azure_native.errors import (
    RETRIED,
    AlreadyThere,
    Cancelled,
    Failed,
    Refused,
)
from tests.fakes.azure_native.kinds import Kind
from tests.fakes.azure_native.store import Record, Store
from tests.fakes.deviations import Deviation

WORKSPACE = "azure-native:machinelearningservices:Workspace"
VAULT = "azure-native:keyvault:Vault"
GROUP = "azure-native:resources:ResourceGroup"
CLUSTER = "azure-native:machinelearningservices:Compute"
IDENTITY = "azure-native:managedidentity:UserAssignedIdentity"
# Two of those that Azure adds of itself where only approved traffic goes out; names begin like so.
REQUIRED_RULES: Record = {
    "__SYS_S_AzureActiveDirectory": {
        "type": "ServiceTag",
        "category": "Required",
        "destination": {
            "serviceTag": "AzureActiveDirectory",
            "protocol": "TCP",
            "portRanges": "80,443",
        },
    },
    "__SYS_PE_vault": {
        "type": "PrivateEndpoint",
        "category": "Required",
        "destination": {"subresourceTarget": "vault", "sparkEnabled": False},
    },
}
RETRIES = 3  # azcore's default
HOW = {"refuse", "fail", "hang", "hang-after"}
KEYS = {"operation", "type", "name", "times", "how", "status", "code", "message", "retry_after_s"}


class Service:
    """One subscription. Safe to use from several threads and processes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.stopping = threading.Event()

    def create(self, kind: Kind, resource_id: str, inputs: Record) -> Record:
        """Make what is not there; raises AlreadyThere where the provider would look and find it."""
        if not kind.singleton and resource_id.lower() in self._store.read()["resources"]:
            raise AlreadyThere(resource_id)
        return self._ask("create", kind, resource_id, inputs)

    def update(self, kind: Kind, resource_id: str, inputs: Record) -> Record:
        """PUT over what is there."""
        return self._ask("update", kind, resource_id, inputs)

    def delete(self, kind: Kind, resource_id: str) -> None:
        """Delete with everything below; what is not there is deleted already."""
        self._ask("delete", kind, resource_id, {})

    def read(self, kind: Kind, resource_id: str) -> Record | None:
        """What the service shows of a resource."""
        trouble = self._next_trouble("read", kind, resource_id)
        if trouble is not None:
            raise _refusal(trouble)
        record = self._store.read()["resources"].get(resource_id.lower())
        if record is None:
            return None
        outputs = record["outputs"]
        is_other = Deviation.ADDRESSES_REWRITTEN in self._store.troubles().get("deviations", ())
        if kind.token == VAULT and is_other:
            for rule in outputs["properties"].get("networkAcls", {}).get("ipRules", []):
                rule["value"] = f"{rule['value'].partition('/')[0]}/32"
        return outputs

    def _ask(self, operation: str, kind: Kind, resource_id: str, inputs: Record) -> Record:
        """One operation with the retries of the real provider's client."""
        for attempt in range(RETRIES + 1):
            call = {"operation": operation, "id": resource_id, "token": kind.token}
            try:
                answer = self._act(operation, kind, resource_id, inputs)
            except Refused as error:
                self._store.note({**call, "attempt": attempt, "error": str(error)})
                if isinstance(error, Failed) or error.status not in RETRIED or attempt == RETRIES:
                    raise
                self._wait(error.retry_after_s or 0.0)
            else:
                self._store.note({**call, "attempt": attempt})
                return answer
        raise AssertionError

    def _act(self, operation: str, kind: Kind, resource_id: str, inputs: Record) -> Record:
        # Half of it before the effect, half before the answer: a kill may fall into either.
        half_s = self._store.troubles().get("latency_s", 0.0) / 2
        self._wait(half_s)
        trouble = self._next_trouble(operation, kind, resource_id)
        how = trouble.get("how", "refuse") if trouble else None
        if trouble is not None and how == "refuse":
            raise _refusal(trouble)
        if how == "hang":
            self._hang(operation, kind, resource_id)
        answer = self._store_change(operation, kind, resource_id, inputs, failed=how == "fail")
        self._wait(half_s)
        if how == "hang-after":
            self._hang(operation, kind, resource_id)
        if trouble is not None and how == "fail":
            raise Failed(trouble["status"], trouble["code"], trouble["message"])
        return answer

    def _store_change(
        self, operation: str, kind: Kind, resource_id: str, inputs: Record, *, failed: bool
    ) -> Record:
        troubles = self._store.troubles()
        with self._store.writing() as state:
            if operation == "delete":
                _delete(state, kind, resource_id, troubles.get("deviations", ()))
                return {}
            old = state["resources"].get(resource_id.lower())
            refusals.check(state, troubles, kind, resource_id, inputs, old)
            outputs = make_outputs(kind, resource_id, _remembered(state, kind, resource_id, inputs))
            _deviate(troubles.get("deviations", ()), kind, outputs, old)
            if kind.token == IDENTITY and old is None:
                _renew_principal(state, resource_id, outputs)
            if failed and "provisioningState" in kind.outputs:
                outputs["provisioningState"] = "Failed"
            state["deleted"].pop(resource_id.lower(), None)
            state["resources"][resource_id.lower()] = {
                "id": resource_id,
                "token": kind.token,
                "inputs": inputs,
                "outputs": outputs,
                "created": old["created"] if old else time.time(),
            }
            _settle_network(state, kind, resource_id)
            _settle_address(kind, outputs)
            return outputs

    def _next_trouble(self, operation: str, kind: Kind, resource_id: str) -> Record | None:
        """The first scripted failure that is meant, used up by one."""
        if not self._store.troubles().get("failures"):
            return None
        name = resource_id.rpartition("/")[2]
        with self._store.using_troubles() as troubles:
            for trouble in troubles["failures"]:
                assert trouble.keys() <= KEYS, f"troubles.json: {trouble}"
                assert trouble.get("how", "refuse") in HOW, f"troubles.json: {trouble}"
                if (
                    trouble["operation"] == operation
                    and fnmatchcase(kind.token, trouble.get("type", "*"))
                    and fnmatchcase(name, trouble.get("name", "*"))
                ):
                    found = dict(trouble)
                    _use_up(troubles, trouble)
                    return found
        return None

    def _hang(self, operation: str, kind: Kind, resource_id: str) -> None:
        call = {"operation": operation, "id": resource_id, "token": kind.token, "hangs": True}
        self._store.note(call)
        self.stopping.wait()
        raise Cancelled

    def _wait(self, seconds: float) -> None:
        if seconds and self.stopping.wait(seconds):
            raise Cancelled


def _refusal(trouble: Record) -> Refused:
    after = trouble.get("retry_after_s")
    return Refused(trouble["status"], trouble["code"], trouble["message"], retry_after_s=after)


def _use_up(troubles: Record, trouble: Record) -> None:
    times = trouble.get("times", 1)
    if times is None:
        return
    trouble["times"] = times - 1
    if trouble["times"] == 0:
        troubles["failures"].remove(trouble)


def _deviate(deviations: Collection[str], kind: Kind, outputs: Record, old: Record | None) -> None:
    """Show what was asked for otherwise, as Azure may."""
    if kind.token == CLUSTER and old is not None and Deviation.TAGS_FIXED in deviations:
        outputs["tags"] = old["outputs"].get("tags", {})


def _delete(
    state: dict[str, dict[str, Record]], kind: Kind, resource_id: str, deviations: Collection[str]
) -> None:
    resources = state["resources"]
    key = resource_id.lower()
    if key not in resources:
        return
    if kind.token == GROUP and Deviation.GROUP_STAYS in deviations:
        return
    refusals.check_delete(state, resource_id)
    if kind.singleton:
        del resources[key]  # reset to what it was with its parent
        return
    for each in [each for each in resources if each == key or each.startswith(f"{key}/")]:
        record = resources.pop(each)
        is_kept = record["token"] == WORKSPACE and Deviation.WORKSPACE_NAME_KEPT in deviations
        if is_kept or refusals.is_soft_deleted(record):
            state["deleted"][each] = record


def _remembered(
    state: dict[str, dict[str, Record]], kind: Kind, resource_id: str, inputs: Record
) -> Record:
    """The inputs with the size that a cluster of this name had first."""
    if kind.token != CLUSTER:
        return inputs
    properties = inputs.get("properties", {}).get("properties", {})
    first = state["sizes"].setdefault(
        resource_id.lower(), {key: properties.get(key) for key in ("vmSize", "vmPriority")}
    )
    kept = copy.deepcopy(inputs)
    kept["properties"]["properties"] |= {key: each for key, each in first.items() if each}
    return kept


def _renew_principal(
    state: dict[str, dict[str, Record]], resource_id: str, outputs: Record
) -> None:
    """Give an identity that was deleted and is made again another principal, as the directory does
    (learn.microsoft.com, role-based-access-control/troubleshooting: "Identity not found")."""
    times = state["identities"].setdefault(resource_id.lower(), {"made": 0})
    times["made"] += 1
    if times["made"] > 1:
        outputs["principalId"] = principal_of(f"{resource_id}#{times['made']}")


def _settle_network(state: dict[str, dict[str, Record]], kind: Kind, resource_id: str) -> None:
    """A workspace's managed network and its rules become active with its creation where that asks
    for it, else with its first compute, and Azure adds rules of its own (learn.microsoft.com,
    how-to-managed-network); rules and their `status` are inputs, too, so that a refresh finds them
    moved."""
    if kind.token not in {WORKSPACE, CLUSTER}:
        return
    workspace = state["resources"][resource_id.lower().partition("/computes/")[0]]
    network = workspace["outputs"].get("managedNetwork", {})
    if network.get("isolationMode", "Disabled") == "Disabled":
        return
    computes = f"{workspace['id'].lower()}/computes/"
    asked = workspace["outputs"].get("provisionNetworkNow") is True
    active = asked or any(each.startswith(computes) for each in state["resources"])
    status = "Active" if active else "Inactive"
    network["status"] = {"status": status, "sparkReady": False}
    rules = network.setdefault("outboundRules", {})
    if active and network["isolationMode"] == "AllowOnlyApprovedOutbound":
        rules |= copy.deepcopy(REQUIRED_RULES)
        target = {"serviceResourceId": workspace["outputs"].get("keyVault")}
        rules["__SYS_PE_vault"]["destination"] |= target
    for rule in rules.values():
        rule["status"] = status


def _settle_address(kind: Kind, outputs: Record) -> None:
    """A workspace without public access has a host of its own (learn.microsoft.com,
    how-to-custom-dns); that its discoveryUrl names it is what an import relies on, a guess."""
    if kind.token == WORKSPACE and outputs.get("publicNetworkAccess") == "Disabled":
        own = f"https://{outputs['workspaceId']}.workspace."
        outputs["discoveryUrl"] = outputs["discoveryUrl"].replace("https://", own)


def principal_of(resource_id: str) -> str:
    """The principal of an identity."""
    return str(uuid.uuid5(uuid.UUID(SUBSCRIPTION_ID), resource_id.lower()))


def client_of(resource_id: str) -> str:
    return str(uuid.uuid5(uuid.UUID(TENANT_ID), resource_id.lower()))


def make_outputs(kind: Kind, resource_id: str, inputs: Record) -> Record:
    """What a reading of the resource gives: its inputs, and what the service adds."""
    name = resource_id.rpartition("/")[2]
    values = {
        "id": resource_id,
        "name": name,
        "location": str(inputs.get("location", "")).replace(" ", "").lower(),
        "guid": principal_of(resource_id),
        "guid2": client_of(resource_id),
        "tenant": TENANT_ID,
    }
    outputs = {
        key: copy.deepcopy(each) for key, each in inputs.items() if key not in kind.beside_body
    }
    identities = inputs.get("identity", {}).get("userAssignedIdentities")
    if identities is not None:
        # Ids go in as a list and come back as a mapping.
        outputs["identity"]["userAssignedIdentities"] = {
            each: {"principalId": principal_of(each), "clientId": client_of(each)}
            for each in identities
        }
    outputs |= {"name": name, "azureApiVersion": kind.api_version}
    outputs |= {"type": kind.arm_type} if kind.is_typed else {}
    for place, text in kind.outputs.items():
        *parents, last = place.split(".")
        inner = outputs
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = text.format(**values) if isinstance(text, str) else text
    return outputs
