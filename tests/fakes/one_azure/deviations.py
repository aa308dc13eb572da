"""Says which requests of the provider are refused while a deviation is on, in whose words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tests.fakes.deviations import Deviation

WORKSPACE = "azure-native:machinelearningservices:Workspace"
COMPUTE = "azure-native:machinelearningservices:Compute"


def _refusal(
    operation: str,
    type_: str,
    code: str,
    message: str,
    *,
    status: int = 400,
    times: int | None = None,
    name: str = "*",
) -> dict[str, Any]:
    return {
        "operation": operation,
        "type": type_,
        "name": name,
        "status": status,
        "code": code,
        "message": message,
        "times": times,
        "retry_after_s": 0.01,
    }


REFUSALS: Mapping[Deviation, dict[str, Any]] = {
    # Microsoft's support article on regions, quoted in public repositories.
    Deviation.REGION_REFUSED: _refusal(
        "create",
        "azure-native:[!r]*",
        "RequestDisallowedByAzure",
        "Resource was disallowed by Azure: The selected region is currently not accepting new "
        "customers: https://aka.ms/locationineligible",
        status=403,
    ),
    # Microsoft: role-based-access-control/troubleshooting.
    Deviation.ROLES_LATE: _refusal(
        "create",
        WORKSPACE,
        "AuthorizationFailed",
        "The client does not have authorization to perform action "
        "'Microsoft.KeyVault/vaults/read' over scope or the scope is invalid. If access was "
        "recently granted, please refresh your credentials.",
        status=403,
        times=1,
    ),
    # Guessed, after pulumi-azure-native issue 3212.
    Deviation.NETWORK_LATE: _refusal(
        "create",
        COMPUTE,
        "ManagedNetworkProvisioningFailed",
        "Managed network provisioning of the workspace is not finished.",
        status=409,
        times=2,
    ),
    # hashicorp/terraform-provider-azurerm issue 22150.
    Deviation.API_VERSION_BROKEN: _refusal(
        "create",
        WORKSPACE,
        "InternalServerError",
        "Received 500 from a service request",
        status=500,
    ),
    # Azure's own code and words for sizes of virtual machines.
    Deviation.SIZE_RESTRICTED: _refusal(
        "create",
        COMPUTE,
        "SkuNotAvailable",
        "The requested size for resource is currently not available in location. Please try "
        "another size or deploy to a different location or zones.",
        status=409,
    ),
    # azure-rest-api-specs, machinelearningservices 2024-10-01, parameter of Compute_Delete; the
    # words are guessed.
    Deviation.DELETE_NEEDS_ARGUMENT: _refusal(
        "delete",
        COMPUTE,
        "BadArgument",
        "The query parameter underlyingResourceAction is required.",
    ),
    # The code is azureml-core's; that a create is refused is guessed.
    Deviation.QUOTA_REFUSES_CLUSTER: _refusal(
        "create",
        COMPUTE,
        "ClusterCoreQuotaReached",
        "Operation results in exceeding quota limits of Core: a Compute cannot be created. "
        "Maximum allowed: 0.",
        name="gpu-*",
    ),
}


def troubles_of(deviations: Collection[Deviation]) -> dict[str, Any]:
    """Write troubles.json of the provider's stand-in for the deviations that are on."""
    return {
        "failures": [dict(REFUSALS[each]) for each in deviations if each in REFUSALS],
        "deviations": [str(each) for each in deviations],
    }
