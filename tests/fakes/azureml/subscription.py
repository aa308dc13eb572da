"""Resource Manager beside the workspace: roles, private endpoints, what the subscription may have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.fakes.azureml.arm import ArmService
from tests.fakes.azureml.messages import Refusal, Reply, Request, answer, on
from tests.fakes.azureml.records import SIZES, Cluster, Records
from tests.fakes.deviations import Deviation

GROUP = "/subscriptions/{sub}/resourceGroups/{group}"
PROVIDERS = "/subscriptions/{sub}/providers"
# Where Azure ML is here; Resource Manager lists regions by the names for people.
REGIONS = ("West Europe", "Sweden Central", "East US 2")
_PRINCIPAL = re.compile(r"principalId eq '([^']+)'")
# As users of such a region have quoted it (Azure-Samples/AI-Gateway issue 398).
INELIGIBLE = "The selected region is currently not accepting new customers: https://aka.ms/locationineligible"


class Subscription(ArmService):
    """Lists and a validation: all are reads."""

    @on("GET", GROUP + "/providers/Microsoft.Authorization/roleAssignments")
    def roles(self, request: Request, **_: str) -> Reply:
        """At, above and below the group; only of one principal, as `launch` asks."""
        if Deviation.ROLES_HIDDEN in self.records.deviations:
            raise Refusal(
                403,
                "AuthorizationFailed",
                f"The client 'me' with object id '{self.place.client_id}' does not have "
                "authorization to perform action 'Microsoft.Authorization/roleAssignments/read' "
                f"over scope '{self.place.group_id}' or the scope is invalid.",
            )
        asked = _PRINCIPAL.fullmatch(request.query["$filter"])
        assert asked, request.query
        is_short = Deviation.ROLE_MISSING in self.records.deviations
        found = [
            each
            for each in self.records.role_assignments
            if each["properties"]["principalId"].lower() == asked[1].lower()
            and not (is_short and "/registries/" in each["properties"]["scope"])
        ]
        return answer({"value": found})

    @on("GET", GROUP + "/providers/Microsoft.Network/privateEndpoints")
    def private_endpoints(self, request: Request, **_: str) -> Reply:
        return answer({"value": [self._endpoint(each) for each in self.records.private_endpoints]})

    def _endpoint(self, endpoint: dict[str, Any]) -> dict[str, Any]:
        if endpoint is not self.records.private_endpoints[0]:
            return endpoint
        state = {"status": "Approved", "description": ""}
        if Deviation.ENDPOINT_PENDING in self.records.deviations:
            state = {"status": "Pending", "description": "Please approve"}
        if Deviation.ENDPOINT_REJECTED in self.records.deviations:
            state = {"status": "Rejected", "description": "not from here"}
        properties = endpoint["properties"]
        (link,) = properties["privateLinkServiceConnections"]
        told = {**link["properties"], "privateLinkServiceConnectionState": state}
        links = [{**link, "properties": told}]
        return {**endpoint, "properties": {**properties, "privateLinkServiceConnections": links}}

    @on("POST", PROVIDERS + "/Microsoft.Resources/deployments/{name}/validate")
    def validate(self, request: Request, name: str, **_: str) -> Reply:
        """Preflight: what a policy refuses is wrapped, as a deployment's error is."""
        resources = request.json["properties"]["template"]["resources"]
        location = request.json["location"]
        inner = [
            each
            for nested in resources
            if nested["type"] == "Microsoft.Resources/deployments"
            for each in nested["properties"]["template"]["resources"]
        ]
        assert {each["location"] for each in inner} == {location}
        if Deviation.REGION_REFUSED in self.records.deviations:
            refused = inner[0]["name"]
            detail = {
                "code": "RequestDisallowedByAzure",
                "target": refused,
                "message": f"Resource '{refused}' was disallowed by Azure: {INELIGIBLE}",
            }
            message = (
                f"The template deployment '{name}' is not valid according to the validation "
                "procedure. The tracking id is '0'. See inner errors for details."
            )
            error = {"code": "InvalidTemplateDeployment", "message": message, "details": [detail]}
            return answer({"error": error}, 400)
        return answer({"name": name, "properties": {"provisioningState": "Succeeded"}})

    @on("GET", PROVIDERS + "/Microsoft.MachineLearningServices")
    def provider(self, request: Request, **_: str) -> Reply:
        deviations = self.records.deviations
        regions = REGIONS[-1:] if Deviation.NO_AZURE_ML_IN_REGION in deviations else REGIONS
        is_new = Deviation.PROVIDER_UNREGISTERED in deviations
        return answer(
            {
                "namespace": "Microsoft.MachineLearningServices",
                "registrationPolicy": "RegistrationRequired",
                "registrationState": "NotRegistered" if is_new else "Registered",
                "resourceTypes": [
                    {"resourceType": "workspaces", "locations": regions},
                    {"resourceType": "operations", "locations": []},
                ],
            }
        )

    @on("GET", PROVIDERS + "/Microsoft.Compute/skus")
    def skus(self, request: Request, **_: str) -> Reply:
        is_restricted = Deviation.SIZE_RESTRICTED in self.records.deviations
        return answer(
            {
                "value": [
                    _sku(each.name, self.place.location, bool(is_restricted and each.num_gpus))
                    for each in SIZES.values()
                ]
            }
        )


def adopt(records: Records, resources: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Have the clusters, roles and private endpoints that a stack has, from types and inputs.

    An identity's principal must be known in them.
    """
    for kind, inputs in resources:
        name = kind.rpartition(":")[2]
        if name == "Compute":
            made = inputs["computeName"]
            records.clusters[made] = Cluster(made, dict(inputs))
        elif name == "RoleAssignment":
            records.role_assignments.append(_assignment(inputs))
        elif name == "PrivateEndpoint":
            records.private_endpoints.append(_endpoint(records.place.group_id, inputs))


def _assignment(inputs: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("scope", "roleDefinitionId", "principalId", "principalType")
    kind, name = "Microsoft.Authorization/roleAssignments", inputs["roleAssignmentName"]
    return {
        "id": f"{inputs['scope']}/providers/{kind}/{name}",
        "name": name,
        "type": kind,
        "properties": {key: inputs[key] for key in keys},
    }


def _endpoint(group_id: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    kind, name = "Microsoft.Network/privateEndpoints", inputs["privateEndpointName"]
    state = {"status": "Approved", "description": ""}
    links = [
        {
            "name": each["name"],
            "properties": {
                "privateLinkServiceId": each["privateLinkServiceId"],
                "groupIds": each["groupIds"],
                "privateLinkServiceConnectionState": state,
            },
        }
        for each in inputs["privateLinkServiceConnections"]
    ]
    return {
        "id": f"{group_id}/providers/{kind}/{name}",
        "name": name,
        "type": kind,
        "properties": {
            "provisioningState": "Succeeded",
            "privateLinkServiceConnections": links,
            "manualPrivateLinkServiceConnections": [],
        },
    }


def _sku(name: str, location: str, is_restricted: bool) -> dict[str, Any]:
    restriction = {
        "type": "Location",
        "values": [location],
        "restrictionInfo": {"locations": [location]},
        "reasonCode": "NotAvailableForSubscription",
    }
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "locations": [location],
        "restrictions": [restriction] if is_restricted else [],
    }
