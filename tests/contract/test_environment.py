"""infra's output and jobs' struct agree on the environment, checked from both sides.

The same is done with the real engine's output in tests/integration/{local_stack,azure_stack}.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

from infra import outputs
from infra.local.platform import LocalPlatform
from infra.local.settings import (
    ClusterSettings,
    LocalSettings,
    StorageSettings,
    Tools,
    WorkspaceSettings,
)
from jobs.contracts.spec import ENVIRONMENT_SCHEMA, Containers, Environment, Storage, Workspace
from jobs.host.environment_file import parse_environment
from jobs.stacks.read import OUTPUT
from tests.fakes.recording_engine import declare
from tests.infra.cloud_declared import (
    STACKS,
    SUBSCRIPTION,
    declare_stack,
    discovery_url,
    environment_of,
    settings_of,
)
from tests.secret_shapes import find_secrets

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "schemas" / "environment-1.json"
IMAGES = {"pytorch": "registry.example/pytorch@sha256:0"}


@pytest.fixture
def settings():
    return LocalSettings(
        storage=StorageSettings(port=10123, folder=Path("/data/my store")),
        workspace=WorkspaceSettings(folder=Path("/data/my runs")),
        clusters={
            "cpu": ClusterSettings(nodes=2, processes_per_node=2),
            "one": ClusterSettings(nodes=1, processes_per_node=1),
        },
        images=IMAGES,
        tools=Tools(node="/node", azurite="/main.js"),
    )


def output_of(settings):
    """What `pulumi stack output environment --json` would print."""

    def program():
        return outputs.local_environment("local", LocalPlatform("local", settings))

    environment, _ = declare(program)
    return json.loads(json.dumps(environment))


@pytest.fixture
def schema():
    return json.loads(SCHEMA_FILE.read_text())


def test_infras_output_is_valid_by_the_published_schema(settings, schema):
    jsonschema.validate(output_of(settings), schema)
    jsonschema.validate(output_of(replace(settings, images={})), schema)


def test_the_published_schema_refuses_what_infra_must_not_write(settings, schema):
    for change in ({"schema": 2}, {"clusters": None}, {"account_key": "x"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(output_of(settings) | change, schema)


def test_jobs_reads_infras_output_value_by_value(settings):
    environment = parse_environment(json.dumps(output_of(settings)).encode(), "the test")

    clusters = environment.clusters
    assert environment == Environment(
        schema=1,
        stack="local",
        engine="local",
        location="local",
        subscription_id=None,
        resource_group=None,
        workspace=Workspace(
            name="local-workspace",
            id=environment.workspace.id,
            endpoint="file:///data/my%20runs",
        ),
        storage=Storage(
            account="trainyard",
            blob_endpoint="http://127.0.0.1:10123/trainyard",
            containers=Containers(data="data", runs="runs"),
            folder="/data/my store",
        ),
        registry=None,
        key_vault=None,
        clusters=clusters,
        images=IMAGES,
    )
    assert environment.workspace.id.endswith("trainyard:local:Workspace::local-workspace")
    assert {name: (each.max_nodes, each.processes_per_node) for name, each in clusters.items()} == {
        "cpu": (2, 2),
        "one": (1, 1),
    }
    assert {each.size for each in clusters.values()} == {"local"}
    assert all(each.compute.startswith(f"{name}-") for name, each in clusters.items())


def as_infra_writes(environment):
    """Without names of datastores: a stack calls them as their containers."""
    written = json.loads(msgspec.json.encode(environment))
    assert written["storage"].pop("datastores") == {}
    return written


def test_infra_writes_every_field_and_only_fields_of_the_struct(settings):
    output = output_of(settings)
    environment = msgspec.json.decode(json.dumps(output), type=Environment)
    assert as_infra_writes(environment) == output


@pytest.mark.parametrize("stack", STACKS)
def test_the_output_of_a_cloud_stack_is_valid_and_read_value_by_value(stack, schema):
    output, settings = environment_of(stack), settings_of(stack)
    jsonschema.validate(output, schema)
    environment = parse_environment(json.dumps(output).encode(), "the test")
    assert as_infra_writes(environment) == output

    declared = {each.type.rpartition("services:")[2]: each.inputs for each in declare_stack(stack)}
    account = environment.storage.account
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{environment.resource_group}"
    assert environment == Environment(
        schema=1,
        stack=stack,
        engine="azureml",
        location=settings.location,
        subscription_id=SUBSCRIPTION,
        resource_group=environment.resource_group,
        workspace=Workspace(
            name=environment.workspace.name,
            id=f"{group}/providers/Microsoft.MachineLearningServices/workspaces/"
            f"{environment.workspace.name}",
            endpoint=discovery_url(declared["Workspace"]).removesuffix("/discovery"),
        ),
        storage=Storage(
            account=account,
            blob_endpoint=f"https://{account}.blob.core.windows.net/",
            containers=Containers(data="data", runs="runs"),
        ),
        registry=environment.registry,
        key_vault=environment.key_vault,
        clusters=environment.clusters,
        images=dict(settings.images),
        network=settings.network,
    )
    assert environment.registry is not None
    assert environment.registry.login_server.endswith(".azurecr.io")
    assert environment.key_vault is not None
    assert re.fullmatch(r"https://[a-z0-9-]+\.vault\.azure\.net/", environment.key_vault.uri)
    assert {
        name: (each.size, each.priority, each.min_nodes, each.max_nodes, each.idle_s)
        for name, each in environment.clusters.items()
    } == {
        name: (each.size, each.priority, each.min_nodes, each.max_nodes, each.idle_s)
        for name, each in settings.clusters.items()
    }
    assert all(each.compute.startswith(f"{name}-") for name, each in environment.clusters.items())


@pytest.mark.parametrize("stack", STACKS)
def test_the_output_of_a_cloud_stack_names_what_the_stack_declares(stack):
    environment = environment_of(stack)
    declared = {each.type.rpartition(":")[2]: each.inputs for each in declare_stack(stack)}
    computes = {
        each.inputs["computeName"]
        for each in declare_stack(stack)
        if each.type.endswith(":Compute")
    }
    accounts = {
        each.inputs["accountName"]
        for each in declare_stack(stack)
        if each.type.endswith(":BlobContainer")
    }
    assert {each["compute"] for each in environment["clusters"].values()} == computes
    assert {environment["storage"]["account"]} == accounts
    assert environment["resource_group"] == declared["ResourceGroup"]["resourceGroupName"]
    vault = declared["Vault"]["vaultName"]
    assert environment["key_vault"]["uri"] == f"https://{vault}-as-azure-says.vault.azure.net/"
    registry = declared["Registry"]["registryName"]
    assert environment["registry"]["login_server"] == f"{registry}-as-azure-says.azurecr.io"


@pytest.mark.parametrize("stack", STACKS)
def test_nothing_that_a_cloud_stack_tells_or_declares_is_a_secret(stack):
    assert find_secrets(json.dumps(environment_of(stack))) == []
    inputs = {each.name: each.inputs for each in declare_stack(stack)}
    assert find_secrets(json.dumps(inputs)) == []


def test_names_that_both_sides_write_are_equal():
    assert outputs.ENVIRONMENT == OUTPUT
    assert outputs.SCHEMA == ENVIRONMENT_SCHEMA
