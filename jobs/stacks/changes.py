"""Judge by a preview which resources `pulumi up` would replace or delete, and which are allowed (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal

import msgspec
from msgspec import Struct

from jobs.contracts.errors import LaunchError, Refused
from jobs.host.structs import prepared
from jobs.stacks.preview import Preview, ResourceState, Step, decode_preview
from jobs.stacks.pulumi_cli import pulumi_failed

Change = Literal["replaced", "deleted", "goes along"]
_Lost = Literal["replaced", "deleted"]

# Pulumi shows one step for a replacement, the others where it is asked for all of them.
_REPLACING = {"replace", "create-replacement", "delete-replaced", "discard-replaced"}
_DELETING = {"delete", "discard"}
_CLUSTER = ":Cluster"
_PROVIDER = "pulumi:providers:"
_QUOTED_URN = re.compile(r'"(urn:pulumi:[^"]+)"')
_PREVIEW_FAILED = "preview failed"
# The engine's reason for what is made again with another resource.
_WITH_ANOTHER = "replaceWith"
_COMPUTE = ":Compute"
_IDENTITY = ":UserAssignedIdentity"
_ROLE = ":RoleAssignment"
_LOCK = ":ManagementLockByScope"
_CRASHED = "an unhandled error occurred"
# What a resource of a kind holds, by module and kind of Pulumi's type. Gone in either case, a new one begins empty.
_HELD = {
    "resources:ResourceGroup": (
        "all resources of the group, also those of other origin; the vault keeps its name, so "
        "a new group needs another `trainyard:generation` as well"
    ),
    "storage:StorageAccount": (
        "every blob in it (datasets, checkpoints, logs, outputs); they are not counted"
    ),
    "storage:BlobContainer": (
        "every blob in it (datasets, checkpoints, logs, outputs); they are not counted"
    ),
    "keyvault:Vault": "every secret in it; a deleted vault can be recovered until its retention ends",
    "containerregistry:Registry": (
        "every image in it; no job that names one starts until it is pushed again"
    ),
    "machinelearningservices:Workspace": (
        "job history, metrics, registered data assets and models; running jobs end"
    ),
    "machinelearningservices:Compute": "running jobs end; their checkpoints stay in the store",
    "operationalinsights:Workspace": "the logs in it",
    "applicationinsights:Component": "the telemetry that it collects",
    # The local store's server.
    "dynamic:Azurite": "access to the store until another serves it; its data stays in its folder",
}
# There while the resource is: a replacement only interrupts it.
_GIVEN = {
    "managedidentity:UserAssignedIdentity": "the access of every program that runs under it",
    "authorization:RoleAssignment": "the access that it gives",
    "authorization:RoleDefinition": "the access that is given by it",
    "authorization:ManagementLockByScope": "protection from deletion",
    "authorization:ManagementLockAtResourceLevel": "protection from deletion",
    "authorization:PolicyAssignment": "what Azure refuses or reports in the group by it",
    "monitor:ActionGroup": "the mails of the alerts",
    "monitor:MetricAlert": "the alert",
    "consumption:Budget": "warnings about the budget",
    "monitor:DiagnosticSetting": "the audit log of its resource",
    "storage:ManagementPolicy": "deletion of temporary files and old checkpoints",
    "storage:BlobServiceProperties": "recovery of blobs that are deleted",
    "storage:FileServiceProperties": "recovery of shares that are deleted",
    "machinelearningservices:Datastore": "jobs' access by the datastore's name (the blobs stay)",
    "machinelearningservices:ManagedNetworkSettingsRule": "the clusters' connections through it",
    "network:VirtualNetwork": "the connections in it, private endpoints included",
    "network:Subnet": "the connections in it, private endpoints included",
    "network:NetworkSecurityGroup": "the rules for what may connect",
    "network:PrivateEndpoint": "the connections through it",
    "network:PrivateDnsZoneGroup": "the host names of private endpoints",
    "privatedns:PrivateZone": "the host names of private endpoints",
    "privatedns:VirtualNetworkLink": "the host names of private endpoints",
}
_UNKNOWN = "its content; this check does not know its kind"


class Loss(Struct, frozen=True, kw_only=True):
    """A resource that would be gone after `pulumi up`, itself or its contents.

    `name` is what `--allow-replace` takes. `because` names the properties that force it. `within`
    is another loss that it is inside of, so that to allow that one is to allow this one; where
    Pulumi itself leaves it as it is, it `goes along`. A protected one makes `up` fail before it
    begins, one that is locked in the middle: Azure deletes nothing below a lock.
    """

    name: str
    resource: str
    type: str
    change: Change
    because: tuple[str, ...]
    costs: str
    within: str | None
    is_protected: bool
    is_locked: bool
    is_allowed: bool


class Changes(Struct, frozen=True, kw_only=True):
    """Effects of `pulumi up` on a stack; `idle_allowances` allow what is not lost.

    Where it `is_cut_short`, Pulumi met something protected and looked no further.
    """

    losses: tuple[Loss, ...]
    updated: tuple[str, ...]
    created: tuple[str, ...]
    idle_allowances: tuple[str, ...]
    is_cut_short: bool


def judge_preview(preview: bytes, stack: str, allowed: Sequence[str]) -> Changes:
    """Read from the JSON of `pulumi preview --show-sames` what would be lost.

    `allowed` are names of clusters or resources. Raises EnvironmentFailure where the preview
    failed, LaunchError for a name that is not in the stack.
    """
    said = decode_preview(preview, stack)
    protected = _find_protected(said, stack)
    resources = _resources(said.steps, protected)
    gone = [each for each in resources if each.change and each.id and not each.is_retained]
    losses: list[Loss] = []
    holders = {one.urn: _holders(one, gone) for one in gone}
    locked = {each.urn for each in gone if _is_locked(each, resources)}
    for each in resources:
        found = holders[each.urn] if each.urn in holders else _holders(each, gone)
        around = sorted(found, key=lambda one: len(holders[one.urn]))
        if each.change is not None or around:
            losses.append(_loss(each, around, allowed, is_locked=each.urn in locked))
    known = {name for each in resources for name in each.names}
    lost = {name for each in resources if each.change for name in each.names}
    lost |= {each.name for each in losses}
    for name in allowed:
        if name not in known and not protected:
            raise _unknown(name, known, losses, stack)
    return Changes(
        losses=tuple(sorted(losses, key=_gravity)),
        updated=_named(resources, "update"),
        created=_named(resources, "create"),
        idle_allowances=tuple(name for name in allowed if name not in lost),
        is_cut_short=bool(protected),
    )


def find_refusal(changes: Changes, stack: str, typed: Sequence[str]) -> Refused | None:
    """Build the error against a `pulumi up` now; `typed` is the command that would allow it."""
    protected = [each.name for each in changes.losses if each.is_protected]
    locked = [each.name for each in changes.losses if each.is_locked]
    for names, what, way in (
        (protected, "protected resources, and Pulumi refuses it", "lift the protection"),
        (
            locked,
            "what is below a lock, and Azure refuses it in the middle of `up`",
            "take one thing out of prod",
        ),
    ):
        if names:
            message = f"`pulumi up -s {stack}` would replace or delete {what}: {', '.join(names)}"
            hint = f"undo the change; if it is intended, docs/azure.md explains how to {way}"
            return Refused(message, hint=hint)
    outermost = (each for each in changes.losses if each.within is None)
    refused = list(dict.fromkeys(each.name for each in outermost if not each.is_allowed))
    if not refused:
        return None
    message = f"`pulumi up -s {stack}` would replace or delete: {', '.join(refused)}"
    options = [word for name in refused for word in ("--allow-replace", name)]
    return Refused(message, hint=f"if that is intended: {' '.join([*typed, *options])}")


class _Resource(Struct, frozen=True, kw_only=True):
    """A resource in the cloud, with its part of a preview."""

    urn: str
    name: str
    type: str
    names: frozenset[str]
    op: str
    change: _Lost | None
    because: tuple[str, ...]
    id: str
    is_protected: bool
    is_retained: bool
    goes_with: str
    lock_scope: str
    uses: frozenset[str]
    serves: frozenset[str]

    def holds(self, other: _Resource) -> bool:
        """Tell whether the other one is inside this one by Azure's ids, or serves it alone.

        A cluster's identity that goes with the cluster serves it, and so do that identity's roles.
        """
        if other.id.lower().startswith(f"{self.id.lower()}/"):
            return True
        return other.change is not None and bool(self.uses & other.serves)


def _find_protected(said: Preview, stack: str) -> dict[str, _Lost]:
    """Map the URN of each protected resource that Pulumi fails for to its loss.

    Raises EnvironmentFailure where it failed for anything else.
    """
    errors = [
        each.message.strip().removeprefix("error: ")
        for each in said.diagnostics
        if each.severity == "error"
    ]
    protected: dict[str, _Lost] = {}
    reasons: list[str] = []
    for error in errors:
        urn = _QUOTED_URN.search(error)
        if urn and "protect" in error:
            protected[urn[1]] = "deleted" if "cannot be deleted" in error else "replaced"
        elif not error.startswith((_PREVIEW_FAILED, _CRASHED)):
            reasons.append(error)
    if reasons or (errors and not protected):
        reason = "\n".join(dict.fromkeys(reasons or errors))
        raise pulumi_failed(reason, command=f"pulumi preview -s {stack}")
    return protected


def _resources(steps: Iterable[Step], protected: Mapping[str, _Lost]) -> list[_Resource]:
    """Group steps by resource in the cloud; a resource of several steps appears once."""
    steps_by_urn: dict[str, list[Step]] = {}
    for step in steps:
        steps_by_urn.setdefault(step.urn, []).append(step)
    resources = [
        _resource(urn, each, protected)
        for urn, each in steps_by_urn.items()
        if any(_state(step).custom for step in each) and not _split(urn)[0].startswith(_PROVIDER)
    ]
    # Of what it refuses to replace before it is made again, Pulumi shows no step.
    unseen = (urn for urn in protected if urn not in steps_by_urn)
    return resources + [_resource(urn, [Step(op="refused", urn=urn)], protected) for urn in unseen]


def _resource(urn: str, steps: Sequence[Step], protected: Mapping[str, _Lost]) -> _Resource:
    resource_type, name = _split(urn)
    step = next((one for one in steps if one.op in _REPLACING | _DELETING), steps[0])
    change = "replaced" if step.op in _REPLACING else "deleted" if step.op in _DELETING else None
    old = step.old_state or ResourceState()
    names = _names(name, _state(step).parent)
    return _Resource(
        urn=urn,
        name=names[0],
        type=resource_type,
        names=frozenset(names),
        op=step.op,
        change=change or protected.get(urn),
        because=_because(step),
        id=old.id,
        is_protected=urn in protected,
        is_retained=old.retain_on_delete,
        goes_with=old.deleted_with,
        lock_scope=_decode_links(_state(step).inputs).scope if _is_lock(resource_type) else "",
        uses=_uses(old),
        serves=_serves(old),
    )


class _Identities(Struct, frozen=True, kw_only=True, rename="camel"):
    user_assigned_identities: tuple[str, ...] = ()


class _Linked(Struct, frozen=True, kw_only=True, rename="camel"):
    """The properties by which clusters, identities, roles and locks name one another."""

    identity: _Identities | None = None
    principal_id: str = ""
    scope: str = ""


def _uses(state: ResourceState) -> frozenset[str]:
    """List what stands for the identities of a cluster, and for the roles of an identity."""
    if state.type.endswith(_COMPUTE):
        identity = _decode_links(state.inputs).identity
        return (
            frozenset(each.lower() for each in identity.user_assigned_identities)
            if identity
            else frozenset()
        )
    if state.type.endswith(_IDENTITY):
        return frozenset({_decode_links(state.outputs).principal_id} - {""})
    return frozenset()


def _serves(state: ResourceState) -> frozenset[str]:
    if state.type.endswith(_IDENTITY):
        return frozenset({state.id.lower()})
    if state.type.endswith(_ROLE):
        return frozenset({_decode_links(state.inputs).principal_id} - {""})
    return frozenset()


def _decode_links(properties: msgspec.Raw) -> _Linked:
    try:
        return msgspec.json.decode(properties, type=prepared(_Linked))
    except msgspec.DecodeError:
        # Written by a provider of another version.
        return _Linked()


def _is_lock(resource_type: str) -> bool:
    return resource_type.endswith(_LOCK)


def _is_locked(each: _Resource, resources: Iterable[_Resource]) -> bool:
    """Tell whether Pulumi would ask Azure to delete what is below a lock that stays.

    It does not ask for what goes with another resource that is deleted.
    """
    if _is_lock(each.type) or any(one.change for one in resources if one.urn == each.goes_with):
        return False
    return any(
        each.id.lower().startswith(f"{one.lock_scope.lower()}/")
        for one in resources
        if one.lock_scope and one.change is None
    )


def _holders(each: _Resource, gone: Sequence[_Resource]) -> list[_Resource]:
    """List the lost resources that one is inside of, by one step or several."""
    found = [one for one in gone if one.holds(each)]
    for one in found:
        found += [two for two in gone if two.holds(one) and two not in found]
    return found


def _names(name: str, parent: str) -> list[str]:
    """List what a person may call a resource, our own name first (a cluster by its key)."""
    component_type, component = _split(parent) if parent else ("", "")
    if component_type.endswith(_CLUSTER):
        return [component.removeprefix("cluster-"), component, name]
    return [name]


def _split(urn: str) -> tuple[str, str]:
    """Cut type and name out of urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME."""
    types, _, name = urn.split("::", 2)[2].partition("::")
    return types.rpartition("$")[2], name


def _state(step: Step) -> ResourceState:
    return step.new_state or step.old_state or ResourceState()


def _named(resources: Iterable[_Resource], op: str) -> tuple[str, ...]:
    return tuple(sorted({each.name for each in resources if each.op == op}))


def _because(step: Step) -> tuple[str, ...]:
    """List the properties that force a replacement, before the others that change."""
    paths = [*(step.replace_reasons or ()), *sorted(step.detailed_diff or {})]
    names = (path.rpartition(".")[2].partition("[")[0] for path in paths if path != _WITH_ANOTHER)
    return tuple(dict.fromkeys(names))


def _loss(
    each: _Resource, around: Sequence[_Resource], allowed: Sequence[str], *, is_locked: bool
) -> Loss:
    """Build the loss of a resource that is inside of the resources `around`, lost themselves."""
    costs = what_is_lost(each.type, is_replaced=each.change == "replaced")
    if each.is_retained and not around:
        costs = "is kept with its content, and the stack forgets it"
    return Loss(
        name=each.name,
        resource=each.urn,
        type=each.type,
        change=each.change or "goes along",
        because=each.because if each.change == "replaced" else (),
        costs=costs,
        within=around[0].name if around else None,
        is_protected=each.is_protected,
        is_locked=is_locked,
        is_allowed=not each.names.union(*(one.names for one in around)).isdisjoint(allowed),
    )


def what_is_lost(resource_type: str, *, is_replaced: bool) -> str:
    """Describe the losses when a resource is replaced or deleted."""
    rest, _, kind = resource_type.rpartition(":")
    # azure-native:storage, or of a pinned API version azure-native:storage/v20240101
    module = rest.rpartition(":")[2].partition("/")[0]
    key = f"{module}:{kind}"
    if key in _GIVEN:
        return f"{_GIVEN[key]}, until the new one works" if is_replaced else _GIVEN[key]
    return _HELD.get(key, _UNKNOWN)


def _gravity(loss: Loss) -> tuple[Any, ...]:
    """Order refused losses first, then by name: Pulumi's order differs every time."""
    within = loss.within or loss.name
    refused = (not loss.is_protected, not loss.is_locked, loss.is_allowed)
    return (*refused, within, loss.within or "", loss.name, loss.type)


def _unknown(name: str, known: set[str], losses: Sequence[Loss], stack: str) -> LaunchError:
    message = f"stack `{stack}` has no cluster or resource `{name}`"
    near = get_close_matches(name, sorted(known), n=1)
    lost = ", ".join(dict.fromkeys(each.name for each in losses))
    hint = (
        f"did you mean `{near[0]}`?" if near else f"resources that can be allowed: {lost or 'none'}"
    )
    return LaunchError(message, hint=hint)
