"""What a stack's resources are protected from, which it only reads, and what comes after what."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pulumi

from infra import outputs
from infra.cloud.creation_hooks import CreationQueue
from infra.cloud.platform import CloudPlatform
from tests.fakes.recording_engine import declare
from tests.infra.cloud_declared import (
    ANSWERS,
    SUBSCRIPTION,
    answers_of,
    declare_stack,
    read_config,
    settings_of,
)


def resources_of(stack: str, **changed: Any) -> dict[str, pulumi.Resource]:
    """What a stack makes of Azure by name, as the engine gets it."""
    seen: list[pulumi.Resource] = []

    def spy(args: pulumi.ResourceTransformationArgs) -> None:
        seen.append(args.resource)

    options = pulumi.ResourceOptions(transformations=[spy])
    settings = settings_of(stack, **changed)
    declare(
        lambda: outputs.cloud_environment(CloudPlatform("cloud", settings, options)),
        stack=stack,
        answers=ANSWERS,
        outputs_of=answers_of,
    )
    return {each._name: each for each in seen if each._type.startswith("azure-native:")}


def test_prod_protects_all_but_clusters_with_their_identities_and_roles():
    clusters = read_config("prod")["clusters"]
    found = resources_of("prod")
    free = {name for name, each in found.items() if not each._protect}
    of_clusters = ("cluster-", "cloud-identity-", "cloud-access-")
    named = tuple(f"{kind}{key}" for kind in of_clusters for key in clusters)
    assert {name for name in free if not name.startswith(named)} == set()
    assert {f"cluster-{key}-compute" for key in clusters} <= free
    assert {name for name, each in resources_of("dev").items() if each._protect} == set()


def test_what_others_have_made_is_read_and_never_declared():
    """What is only read, no `destroy` deletes."""
    hub = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/hub/providers"
    there = {
        "resource_group": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/training",
        "endpoints_subnet": f"{hub}/Microsoft.Network/virtualNetworks/hub/subnets/endpoints",
        "dns_zones": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/dns",
        "log_analytics": f"{hub}/Microsoft.OperationalInsights/workspaces/central",
        "registry": f"{hub}/Microsoft.ContainerRegistry/registries/central",
        "key_vault": f"{hub}/Microsoft.KeyVault/vaults/central",
    }
    own = {each.type for each in declare_stack("test") if each.inputs}
    left = {each.type for each in declare_stack("test", existing=there) if each.inputs}
    assert {each.removeprefix("azure-native:") for each in own - left} >= {
        "resources:ResourceGroup",
        "network:VirtualNetwork",
        "network:Subnet",
        "privatedns:PrivateZone",
        "privatedns:VirtualNetworkLink",
        "operationalinsights:Workspace",
        "containerregistry:Registry",
        "keyvault:Vault",
    }


def options_of(stack: str, **changed: Any) -> dict[str, pulumi.ResourceOptions]:
    """The options of a stack's resources by name, as the engine gets them."""
    seen: dict[str, pulumi.ResourceOptions] = {}

    def spy(args: pulumi.ResourceTransformationArgs) -> None:
        seen[args.name] = args.opts

    settings = settings_of(stack, **changed)
    platform = pulumi.ResourceOptions(transformations=[spy])
    declare(
        lambda: CloudPlatform("cloud", settings, platform), answers=ANSWERS, outputs_of=answers_of
    )
    return seen


def test_the_workspace_comes_after_its_roles_and_each_cluster_after_the_one_before(monkeypatch):
    options = options_of("dev", role_wait_s=7)
    workspace = options["cloud-workspace"]
    roles = {name for name in options if name.startswith("cloud-access-workspace-")}
    assert "cloud-access-workspace-approval-group" in roles
    assert roles <= {each._name for each in workspace.depends_on}
    waits: list[float] = []
    monkeypatch.setattr(pulumi.log, "info", print)
    monkeypatch.setattr(asyncio, "sleep", AsyncMock(side_effect=waits.append))
    (wait,) = workspace.hooks.before_create
    asyncio.run(wait.callback(SimpleNamespace(name="cloud-workspace")))
    assert waits == [7]
    first, second = (
        options[f"cluster-{key}-compute"].hooks for key in read_config("dev")["clusters"]
    )
    assert first.before_create[0] is second.before_create[0]


def test_a_cluster_comes_after_the_roles_of_its_own_identity_and_waits_for_no_others():
    """A role that Azure refuses costs the clusters of that identity, and 200 clusters stay quick."""
    own = read_config("dev")["clusters"]["cpu"]
    shared = own | {"identity": "team"}
    clusters = {"cpu": own, "one": shared, "two": shared}
    options = options_of("dev", clusters=clusters)
    for key, identity in {"cpu": "cpu", "one": "team", "two": "team"}.items():
        waited = {each._name for each in options[f"cluster-{key}-compute"].depends_on}
        roles = {name for name in options if name.startswith(f"cloud-access-{identity}-")}
        assert f"cloud-access-{identity}-images" in roles
        assert {name for name in waited if name.startswith("cloud-access-")} == roles


def test_another_cluster_comes_before_the_old_one_goes_and_only_launch_moves_its_minimum():
    """Its name is another one then (test_cloud_stacks.py): both can be there at once."""
    found = options_of("dev")["cluster-gpu-compute"]
    assert found.delete_before_replace is False
    assert found.ignore_changes == ["properties.properties.scaleSettings.minNodeCount"]


def test_creations_of_a_queue_wait_for_the_end_or_the_failure_of_the_one_before():
    async def whole() -> list[str]:
        hooks = CreationQueue("clusters").hooks()
        (begin,), (end,), (error,) = hooks.before_create, hooks.after_create, hooks.on_error
        done: list[str] = []

        async def create(urn: str) -> None:
            await begin.callback(SimpleNamespace(urn=urn))
            done.append(f"{urn} begins")

        waiting = [asyncio.create_task(create(urn)) for urn in "abc"]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # A failed update of another one had no turn, and ends none.
        assert error.callback(SimpleNamespace(urn="x")) is False
        await asyncio.sleep(0)
        done.append("a fails")
        assert error.callback(SimpleNamespace(urn="a")) is False
        await waiting[1]
        done.append("b ends")
        end.callback(SimpleNamespace(urn="b"))
        await waiting[2]
        return done

    assert asyncio.run(whole()) == ["a begins", "a fails", "b begins", "b ends", "c begins"]
