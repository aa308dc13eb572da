"""Resource Manager: clusters, their nodes, sizes, prices and quotas."""

from __future__ import annotations

import copy
from typing import Any

from tests.fakes.azureml.arm import LOCATION, WS, ArmService, check_body
from tests.fakes.azureml.messages import Refusal, Reply, Request, answer, on
from tests.fakes.azureml.records import SIZES, Cluster, Place, Records, iso, now, system_data
from tests.fakes.deviations import Deviation

LOW_PRIORITY = "Total Cluster LowPriority Regional vCPUs"
DEDICATED = "Total Cluster Dedicated Regional vCPUs"
COUNTS = ("idle", "running", "preparing", "unusable", "leaving", "preempted")


class Computes(ArmService):
    """AmlComputes; a changed size or priority is acknowledged and not applied, as Azure does."""

    @on("GET", WS + "/computes")
    def list_computes(self, request: Request, **_: str) -> Reply:
        return answer(
            {"value": [show_cluster(self.place, each) for each in self.records.clusters.values()]}
        )

    @on("GET", WS + "/computes/{name}")
    def compute(self, request: Request, name: str, **_: str) -> Reply:
        shown = show_cluster(self.place, self.cluster(name))
        if Deviation.CLUSTER_FAILED in self.records.deviations:
            shown["properties"]["provisioningState"] = "Failed"
            error = {"code": "InternalServerError", "message": "The network is not ready."}
            shown["properties"]["properties"]["errors"] = [{"error": error}]
        return answer(shown)

    @on("PUT", WS + "/computes/{name}")
    def put(self, request: Request, name: str, **_: str) -> Reply:
        body = check_body("compute", request)
        kept = self.records.clusters.get(name)
        wanted = body["properties"].get("properties") or {}
        _check_scale(wanted.get("scaleSettings") or {})
        if kept is None:
            self.records.clusters[name] = Cluster(name, body)
            return answer(show_cluster(self.place, self.records.clusters[name]), 201)
        stays = ["vmSize", "vmPriority"]
        if Deviation.SCALE_IGNORED in self.records.deviations:
            stays.append("scaleSettings")
        fixed = {key: kept.properties.get(key) for key in stays}
        body["properties"]["properties"] = {**kept.properties, **wanted, **fixed}
        kept.body, kept.modified = body, now()
        return answer(show_cluster(self.place, kept))

    @on("PATCH", WS + "/computes/{name}")
    def patch(self, request: Request, name: str, **_: str) -> Reply:
        body = check_body("compute-update", request)
        kept = self.cluster(name)
        scale = body["properties"]["properties"]["scaleSettings"]
        _check_scale(scale)
        if Deviation.SCALE_IGNORED not in self.records.deviations:
            kept.properties["scaleSettings"] = scale
        kept.modified = now()
        return answer(show_cluster(self.place, kept))

    @on("POST", WS + "/computes/{name}/listNodes")
    def list_nodes(self, request: Request, name: str, **_: str) -> Reply:
        cluster = self.cluster(name)
        cluster.settle()
        nodes = [
            {
                "nodeId": f"tvmps_{name}_{node.number}_d",
                "privateIpAddress": node.address,
                "publicIpAddress": None,
                "port": 50000,
                "nodeState": node.state,
                "runId": node.run,
            }
            for node in cluster.nodes
        ]
        return answer({"nodes": nodes, "nextLink": None})

    @on("GET", LOCATION + "/usages")
    def usages(self, request: Request, location: str, **_: str) -> Reply:
        """As in azure-rest-api-specs, machinelearningservices 2024-04-01, examples/Usage/list.json.

        `family_names` is how a family's own rows are spelled: as there, or as seen on Azure.
        """
        subscription = f"/subscriptions/{self.place.subscription_id}"
        families = {each.label: each.family for each in SIZES.values()}
        rows = [
            _usage(subscription, "dedicatedCores", DEDICATED, self._used(DEDICATED)),
            _usage(subscription, "lowPriorityCores", LOW_PRIORITY, self._used(LOW_PRIORITY)),
        ]
        for label, family in sorted(families.items()):
            name = dedicated_quota(label)
            if self.records.family_names == "short":
                rows += _short_usages(subscription, family, name, self._used(name))
                continue
            rows.append(_usage(subscription, "vmFamily", name, self._used(name)))
            # A workspace's share, and each cluster's, stand in the same list.
            shared = (self._used(name)[0], self.records.workspace_limits.get(name, -1))
            rows.append(_usage(self.place.workspace_id, "workspaces", name, shared))
            name = f"{label} Cluster LowPriority vCPUs"
            rows.append(_usage(subscription, "vmFamily", name, (0, -1)))
        for cluster in self.records.clusters.values():
            name = dedicated_quota(cluster.size.label)
            used = (cluster.size.num_vcpus * len(cluster.nodes), self._used(name)[1])
            owner = f"{self.place.workspace_id}/computes/{cluster.name}"
            rows.append(_usage(owner, "workspaces/computes", name, used))
        return answer({"value": rows})

    def _used(self, quota: str) -> tuple[int, int]:
        is_zero = Deviation.QUOTA_ZERO in self.records.deviations and "NC" in quota
        return in_use(self.records, quota), 0 if is_zero else self.records.limits.get(quota, 100)

    @on("GET", LOCATION + "/vmSizes")
    def sizes(self, request: Request, **_: str) -> Reply:
        value = [
            {
                "name": size.name,
                "family": size.family,
                "vCPUs": size.num_vcpus,
                "gpus": size.num_gpus,
                "osVhdSizeMB": 1047552,
                "maxResourceVolumeMB": 28672,
                "memoryGB": size.memory_gb,
                "lowPriorityCapable": True,
                "premiumIO": True,
                "supportedComputeTypes": ["AmlCompute", "ComputeInstance"],
                "estimatedVMPrices": {
                    "billingCurrency": "USD",
                    "unitOfMeasure": "OneHour",
                    "values": [
                        {"retailPrice": size.price, "osType": "Linux", "vmTier": "Standard"},
                        {
                            "retailPrice": size.low_priority_price,
                            "osType": "Linux",
                            "vmTier": "LowPriority",
                        },
                    ],
                },
            }
            for size in SIZES.values()
            if not (size.num_gpus and Deviation.SIZE_MISSING in self.records.deviations)
        ]
        return answer({"value": value})

    def cluster(self, name: str) -> Cluster:
        if name not in self.records.clusters:
            raise Refusal(404, "ResourceNotFound", f"Compute {name} was not found.")
        return self.records.clusters[name]


def show_cluster(place: Place, cluster: Cluster) -> dict[str, Any]:
    """As Azure shows a cluster: what was declared, and what it has come to."""
    cluster.settle()
    counts = {
        f"{state}NodeCount": sum(node.state == state for node in cluster.nodes) for state in COUNTS
    }
    body = copy.deepcopy(cluster.body)
    body["properties"] |= {
        "provisioningState": "Succeeded",
        "provisioningErrors": None,
        "createdOn": iso(cluster.created),
        "modifiedOn": iso(cluster.modified),
        "isAttachedCompute": False,
        "resourceId": None,
        "computeLocation": place.location,
    }
    body["properties"]["properties"] |= {
        "allocationState": "Steady",
        "allocationStateTransitionTime": iso(cluster.modified),
        "errors": cluster.errors or None,
        "currentNodeCount": len(cluster.nodes),
        "targetNodeCount": len(cluster.nodes),
        "nodeStateCounts": counts,
    }
    return {
        **body,
        "id": f"{place.workspace_id}/computes/{cluster.name}",
        "name": cluster.name,
        "type": "Microsoft.MachineLearningServices/workspaces/computes",
        "location": place.location,
        "systemData": system_data(cluster.created),
    }


def dedicated_quota(label: str) -> str:
    """What the quota of a family's dedicated nodes is called."""
    return f"{label} Cluster Dedicated vCPUs"


def _usage(owner: str, kind: str, name: str, used: tuple[int, int]) -> dict[str, Any]:
    total = kind.endswith("Cores")
    return {
        "id": f"{owner}/usages" + ("" if total else f"/{name.replace(' ', '_')}"),
        "type": f"Microsoft.MachineLearningServices/{kind}/usages",
        "unit": "Count",
        "currentValue": used[0],
        "limit": used[1],
        "name": {"value": name, "localizedValue": name},
    }


def _short_usages(
    owner: str, family: str, name: str, used: tuple[int, int]
) -> list[dict[str, Any]]:
    """Both priorities under one `value`, told apart by `type` alone."""
    dedicated = _usage(owner, "vmFamily/dedicatedCores", name, used)
    dedicated["name"]["value"] = family
    low = _usage(owner, "vmFamily/lowPriorityCores", family, (0, -1))
    return [low, dedicated]


def in_use(records: Records, quota: str) -> int:
    """vCPUs of the nodes that count against a quota; clusters without nodes cost none."""
    total = 0
    for cluster in records.clusters.values():
        names = (
            {DEDICATED, dedicated_quota(cluster.size.label)}
            if cluster.is_dedicated
            else {LOW_PRIORITY}
        )
        total += cluster.size.num_vcpus * len(cluster.nodes) * (quota in names)
    return total


def _check_scale(scale: dict[str, Any]) -> None:
    minimum, maximum = scale.get("minNodeCount") or 0, scale.get("maxNodeCount")
    if maximum is None or not 0 <= minimum <= maximum:
        message = f"The minimum {minimum} and the maximum {maximum} make no scale."
        raise Refusal(400, "InvalidScaleSettings", message)
