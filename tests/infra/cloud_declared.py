"""Records what the committed cloud stacks declare, by the recording engine.

`declare_stack("dev")` runs the program that Pulumi would run on Pulumi.dev.yaml and gives every
resource's type, name and inputs; further keywords replace settings (`clusters={...}`). No account
is asked: the subscription and the tenant are made up.
"""

from __future__ import annotations

import datetime
import functools
import json
from pathlib import Path
from typing import Any

import yaml

from infra import outputs
from infra.cloud.platform import CloudPlatform
from infra.cloud.settings import CloudSettings
from infra.settings import parse_settings
from tests.fakes.recording_engine import Declared, declare

SUBSCRIPTION = "11111111-1111-4111-8111-111111111111"
TENANT = "22222222-2222-4222-8222-222222222222"
TODAY = datetime.date(2026, 11, 21)
STACKS = ("dev", "test", "prod")
ANSWERS = {
    "azure-native:authorization:getClientConfig": {
        "clientId": "33333333-3333-4333-8333-333333333333",
        "objectId": "44444444-4444-4444-8444-444444444444",
        "subscriptionId": SUBSCRIPTION,
        "tenantId": TENANT,
    }
}
_REPO = Path(__file__).parents[2]


def read_config(stack: str) -> dict[str, Any]:
    """The settings of Pulumi.STACK.yaml without their namespace."""
    stage = stack.partition("-")[0]
    config = yaml.safe_load((_REPO / f"Pulumi.{stage}.yaml").read_text())["config"]
    return {key.removeprefix("trainyard:"): value for key, value in config.items()}


def settings_of(stack: str, **changed: Any) -> CloudSettings:
    """Parse the settings of a stack with these changes; a setting that is None is left out."""
    config = {
        key: value for key, value in (read_config(stack) | changed).items() if value is not None
    }
    encoded = {
        f"trainyard:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in config.items()
    }
    settings = parse_settings(encoded, stack=stack, root=_REPO, today=TODAY)
    assert isinstance(settings, CloudSettings)
    return settings


def declare_stack(stack: str, **changed: Any) -> list[Declared]:
    """Every resource that the stack declares, in the order of its program."""
    return _declare(stack, json.dumps(changed))[1]


def environment_of(stack: str, **changed: Any) -> dict[str, Any]:
    """The stack's output `environment`."""
    return _declare(stack, json.dumps(changed))[0]


@functools.cache
def _declare(stack: str, changed: str) -> tuple[dict[str, Any], list[Declared]]:
    settings = settings_of(stack, **json.loads(changed))

    def program() -> dict[str, Any]:
        return outputs.cloud_environment(CloudPlatform("cloud", settings))

    environment, declared = declare(program, stack=stack, answers=ANSWERS, outputs_of=answers_of)
    return json.loads(json.dumps(environment)), declared


def answers_of(declared: Declared) -> dict[str, Any]:
    """Invent the outputs that only Azure knows and the program passes on, such as principal ids."""
    if declared.type.endswith(":UserAssignedIdentity"):
        return {"principalId": f"principal-of-{declared.name}"}
    found: dict[str, Any] = {}
    inputs = declared.inputs
    if "identity" in inputs:
        # Sent as a list, given back as a mapping; the SDK minds.
        identity = inputs["identity"]
        ids = {each: {} for each in identity["userAssignedIdentities"]}
        found |= {"identity": identity | {"userAssignedIdentities": ids}}
    match declared.type.removeprefix("azure-native:"):
        case "machinelearningservices:Workspace":
            found["discoveryUrl"] = discovery_url(inputs)
        case "keyvault:Vault":
            # One that is only read has no inputs.
            name = inputs.get("vaultName", declared.name)
            uri = f"https://{name}-as-azure-says.vault.azure.net/"
            found["properties"] = inputs.get("properties", {}) | {"vaultUri": uri}
        case "containerregistry:Registry":
            name = inputs.get("registryName", declared.name)
            found["loginServer"] = f"{name}-as-azure-says.azurecr.io"
        case _:
            pass
    return found


def discovery_url(inputs: dict[str, Any]) -> str:
    """Where Azure says that a workspace is: a private one has a host of its own."""
    own = f"{TENANT}.workspace." if inputs["publicNetworkAccess"] == "Disabled" else ""
    return f"https://{own}{inputs['location']}.api.azureml.ms/discovery"
