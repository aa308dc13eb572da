"""Records what one part of a cloud stack declares, its options too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pulumi
import pytest
from pulumi_azure_native.resources import ResourceGroup

from infra.cloud.context import Context, make_context
from infra.cloud.settings import BudgetSettings, CloudSettings, PeopleSettings
from tests.fakes.recording_engine import declare

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
SETTINGS["test"] = replace(
    SETTINGS["dev"], stack="test", stage="test", network="private", allowed_ips=()
)
# dev may be private too; its stage stays.
SETTINGS["private dev"] = replace(SETTINGS["dev"], network="private", allowed_ips=())
SETTINGS["prod"] = replace(SETTINGS["test"], stack="prod", stage="prod")


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


@pytest.fixture
def record():
    """`record("dev", lambda context, group, opts: Vault(...))`."""

    def recorded(stage: str, program: Program) -> Recording:
        context = make_context(SETTINGS[stage], subscription_id=SUBSCRIPTION)
        options: dict[str, pulumi.ResourceOptions] = {}

        def spy(args: pulumi.ResourceTransformationArgs) -> None:
            options[args.name] = args.opts

        def whole() -> int:
            program(context, ResourceGroup("group"), pulumi.ResourceOptions(transformations=[spy]))
            return 0

        _, declared = declare(whole)
        return Recording(
            context,
            {
                each.name: Seen(each.type, each.inputs, options[each.name])
                for each in declared
                if each.name in options
            },
        )

    return recorded
