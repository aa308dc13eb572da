"""Records what one part of a cloud stack declares, its options too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pulumi
import pytest
from msgspec.structs import replace
from pulumi_azure_native.resources import ResourceGroup

from infra.cloud.context import Context, make_context
from infra.cloud.interfaces import Interfaces
from infra.cloud.network import Network
from infra.cloud.settings import (
    AddressSettings,
    BudgetSettings,
    CloudSettings,
    ExistingSettings,
    PeopleSettings,
)
from tests.fakes.recording_engine import declare
from tests.infra.cloud_declared import answers_of

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"

SETTINGS = {
    "dev": CloudSettings(
        stack="dev",
        stage="dev",
        location="westeurope",
        name="acme",
        owner="platform@example.com",
        generation=1,
        network="public",
        allowed_ips=("198.51.100.7", "203.0.113.0/24"),
        budget=BudgetSettings(monthly_amount=1, contacts=("platform@example.com",), start=""),
        clusters={},
        images={},
        secrets=(),
        people=PeopleSettings(),
    )
}


def _private(number: int, **changed: Any) -> CloudSettings:
    addresses = AddressSettings(network=f"10.{number}.0.0/24", endpoints=f"10.{number}.0.0/25")
    private = replace(SETTINGS["dev"], network="private", allowed_ips=(), addresses=addresses)
    return replace(private, **changed)


SETTINGS["test"] = _private(82, stack="test", stage="test")
# dev may be private too; its stage stays.
SETTINGS["private dev"] = _private(81)
SETTINGS["prod"] = _private(83, stack="prod", stage="prod")


@dataclass(frozen=True)
class Seen:
    """One recorded resource: its type, its inputs, its options."""

    type: str
    inputs: dict[str, Any]
    options: pulumi.ResourceOptions


@dataclass(frozen=True)
class Recording:
    """Declarations of a part of a stage's stack by name, with its context."""

    context: Context
    seen: dict[str, Seen]

    def inputs(self) -> dict[str, dict[str, Any]]:
        return {name: seen.inputs for name, seen in self.seen.items() if seen.inputs}

    def waits_for(self, name: str) -> list[str]:
        """The logical names that a resource names as what it comes after."""
        others = self.seen[name].options.depends_on
        return sorted(other._name for other in others)


Program = Callable[[Context, ResourceGroup, pulumi.ResourceOptions], Any]


def interfaces_of(platform: pulumi.Resource, *, network: Network | None = None) -> Interfaces:
    """Those of a stack without logs and locks; without a network where none is given."""
    return Interfaces(name="cloud", platform=platform, network=network, monitoring=None, locks=None)


@pytest.fixture
def record():
    """`record("dev", lambda context, group, opts: Vault(...))`."""

    def recorded(stage: str, program: Program, **existing: Any) -> Recording:
        settings = replace(SETTINGS[stage], existing=ExistingSettings(**existing))
        context = make_context(settings, subscription_id=SUBSCRIPTION)
        options: dict[str, pulumi.ResourceOptions] = {}

        def spy(args: pulumi.ResourceTransformationArgs) -> None:
            options[args.name] = args.opts

        def whole() -> int:
            program(context, ResourceGroup("group"), pulumi.ResourceOptions(transformations=[spy]))
            return 0

        _, declared = declare(whole, outputs_of=answers_of)
        return Recording(
            context,
            {
                each.name: Seen(each.type, each.inputs, options[each.name])
                for each in declared
                if each.name in options
            },
        )

    return recorded
