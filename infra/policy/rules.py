"""Defines rules: data for a condition on one property, a small function for any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

from infra.policy.conditions import Condition

Stage = Literal["dev", "test", "prod"]
STAGES: tuple[Stage, ...] = ("dev", "test", "prod")
AZURE = "azure-native:"
GROUP = "azure-native:resources:ResourceGroup"
PLATFORM = "trainyard:cloud:Platform"

# Type -> provider's type in ids, and the property that holds the name.
ID_PARTS = {
    "azure-native:applicationinsights:Component": ("microsoft.insights/components", "resourceName"),
    "azure-native:containerregistry:Registry": (
        "microsoft.containerregistry/registries",
        "registryName",
    ),
    "azure-native:keyvault:Vault": ("microsoft.keyvault/vaults", "vaultName"),
    "azure-native:machinelearningservices:Workspace": (
        "microsoft.machinelearningservices/workspaces",
        "workspaceName",
    ),
    "azure-native:managedidentity:UserAssignedIdentity": (
        "microsoft.managedidentity/userassignedidentities",
        "resourceName",
    ),
    "azure-native:monitor:ActionGroup": ("microsoft.insights/actiongroups", "actionGroupName"),
    "azure-native:operationalinsights:Workspace": (
        "microsoft.operationalinsights/workspaces",
        "workspaceName",
    ),
    "azure-native:storage:StorageAccount": ("microsoft.storage/storageaccounts", "accountName"),
}


# eq=False: a comparison would read inputs that may be unknown.
@dataclass(frozen=True, kw_only=True, eq=False)
class Resource:
    """A resource as the program declares it; a read of an unknown input may raise."""

    urn: str
    type: str
    inputs: Mapping[str, Any]
    protect: bool
    # Input -> the urns of the resources whose outputs it is made from.
    made_from: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def stack(self) -> str:
        return self.urn.split("::", 1)[0].rpartition(":")[2]

    @property
    def stage(self) -> Stage:
        return stage_of(self.stack)

    @property
    def name(self) -> str:
        return self.urn.rpartition("::")[2]

    @cached_property
    def id_ending(self) -> str:
        """The end of this resource's id, in small letters; '' for a type without a row."""
        if self.type not in ID_PARTS:
            return ""
        kind, name = ID_PARTS[self.type]
        group, own = self.inputs.get("resourceGroupName"), self.inputs.get(name)
        return f"/resourcegroups/{group}/providers/{kind}/{own}".lower()


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Resources of one stack, and its outputs as far as they are known."""

    name: str
    resources: tuple[Resource, ...]
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # Whether anything of it is in Azure already, where `launch` may have moved what it may move.
    is_up: bool = False

    @property
    def stage(self) -> Stage:
        return stage_of(self.name)

    @cached_property
    def is_cloud(self) -> bool:
        return any(each.type.startswith(AZURE) for each in self.resources)

    def of(self, *types: str) -> list[Resource]:
        return [each for type_ in types for each in self._by_type.get(type_, ())]

    def by_id(self, resource_id: object) -> Resource | None:
        """Find the declared resource of an id."""
        _, group, rest = str(resource_id).lower().partition("/resourcegroups/")
        return self._by_id_ending.get(group + rest)

    @cached_property
    def existing(self) -> frozenset[str]:
        """Ids, in small letters, of what the settings name and the stack has not made."""
        platforms = self.of(PLATFORM)
        return frozenset(
            str(each).lower() for one in platforms for each in one.inputs.get("existing") or ()
        )

    @cached_property
    def groups(self) -> frozenset[str]:
        """Names, in small letters, of the stack's resource groups."""
        declared = (each.inputs.get("resourceGroupName") for each in self.of(GROUP))
        named = (each.rpartition("/")[2] for each in self.existing if "/providers/" not in each)
        return frozenset({str(each).lower() for each in declared} | set(named))

    def has(self, resource_id: object, *types: str) -> bool:
        """Tell whether an id is that of a declared resource of a type, or of one that is named."""
        found = self.by_id(resource_id)
        if found is None:
            return str(resource_id).lower() in self.existing
        return found.type in types if types else True

    @cached_property
    def _by_type(self) -> Mapping[str, list[Resource]]:
        found: dict[str, list[Resource]] = {}
        for each in self.resources:
            found.setdefault(each.type, []).append(each)
        return found

    @cached_property
    def _by_id_ending(self) -> Mapping[str, Resource]:
        return {each.id_ending: each for each in self.resources if each.id_ending}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A violation and the resource's urn; '' means the stack."""

    message: str
    urn: str = ""


@dataclass(frozen=True, kw_only=True)
class ResourceRule:
    """Judges each resource of its types by itself."""

    name: str
    row: str
    says: str
    sources: str
    types: tuple[str, ...]
    check: Callable[[Resource], Iterable[str]]
    stages: tuple[Stage, ...] = STAGES
    # Where a property rule looks; a rule that is a function has none.
    path: str = ""

    def judge(self, resource: Resource) -> list[str]:
        if resource.type not in self.types or resource.stage not in self.stages:
            return []
        return list(self.check(resource))


@dataclass(frozen=True, kw_only=True)
class StackRule:
    """Judges a stack as a whole, by resources that are missing or do not fit together."""

    name: str
    row: str
    says: str
    sources: str
    check: Callable[[Stack], Iterable[Finding]]
    stages: tuple[Stage, ...] = STAGES

    def judge(self, stack: Stack) -> list[Finding]:
        if not stack.is_cloud or stack.stage not in self.stages:
            return []
        return list(self.check(stack))


Rule = ResourceRule | StackRule


def stage_of(stack: str) -> Stage:
    """Cut a stack's name at its first dash; a name of no stage is judged as prod."""
    stage = stack.partition("-")[0]
    return stage if stage in STAGES else "prod"


def in_private(condition: Condition) -> Mapping[Stage, Condition]:
    """Demand the condition in the stages that no public network reaches."""
    return {"test": condition, "prod": condition}


def in_prod(condition: Condition) -> Mapping[Stage, Condition]:
    """Demand the condition in prod only."""
    return {"prod": condition}


def property_rule(
    type: str,  # noqa: A002  # the word that Pulumi uses
    name: str,
    row: str,
    path: str,
    condition: Condition | Mapping[Stage, Condition],
    *,
    sources: str,
    why: str = "",
) -> ResourceRule:
    """Build a rule on one property; a stage without a condition is not judged."""
    conditions: Mapping[Stage, Condition] = (
        dict.fromkeys(STAGES, condition) if isinstance(condition, Condition) else condition
    )

    def check(resource: Resource) -> Iterable[str]:
        wanted, value = conditions[resource.stage], look_up(resource.inputs, path)
        if not wanted.holds(value):
            yield f"{path} is {show(value)}, but must be {wanted.text}"

    return ResourceRule(
        name=name,
        row=row,
        says=f"{type.rpartition(':')[2]}.{path}: {_describe(conditions)}{why and f' ({why})'}",
        sources=sources,
        types=(type,),
        check=check,
        stages=tuple(conditions),
        path=path,
    )


def look_up(inputs: Mapping[str, Any], path: str) -> Any:
    """Read the value at a dotted path; None where a part of it is missing."""
    value: Any = inputs
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(key)
    return value


def show(value: Any) -> str:
    """Write a value for a message, cut to 80 characters, since it may come from anywhere."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    # A number has crossed gRPC as a float.
    if isinstance(value, int | float):
        return f"{value:.15g}"
    text = str(value)
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def _describe(conditions: Mapping[Stage, Condition]) -> str:
    texts = {stage: condition.text for stage, condition in conditions.items()}
    if len(texts) == len(STAGES) and len(set(texts.values())) == 1:
        return texts["dev"]
    return "; ".join(
        f"{', '.join(stage for stage in texts if texts[stage] == text)} {text}"
        for text in dict.fromkeys(texts.values())
    )
