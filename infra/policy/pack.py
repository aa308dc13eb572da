"""Turns each rule into a mandatory policy of CrossGuard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pulumi_policy
from pulumi_policy.proxy import UnknownValueError

from infra.policy import (
    access,
    key_vault,
    lifecycle,
    machine_learning,
    monitoring,
    network,
    registry,
    stack,
    storage,
)
from infra.policy.rules import AZURE, Resource, ResourceRule, Rule, Stack, StackRule

NAME = "trainyard"
STACK_TYPE = "pulumi:pulumi:Stack"

RULES: tuple[Rule, ...] = (
    *storage.RULES,
    *key_vault.RULES,
    *registry.RULES,
    *machine_learning.RULES,
    *access.RULES,
    *network.RULES,
    *lifecycle.RULES,
    *monitoring.RULES,
    *stack.RULES,
)


def policies() -> list[pulumi_policy.Policy]:
    """Build the policies of one analyzer, which judges one deployment.

    A stack's rules need what was declared: the engine hands them each resource's outputs, in which
    a lock has no scope and a vault no group. So what was declared is noted where the engine shows
    it, resource by resource, before it shows the stack.
    """
    declared: dict[str, Resource] = {}
    return [
        _resource_policy(rule, declared)
        if isinstance(rule, ResourceRule)
        else _stack_policy(rule, declared)
        for rule in RULES
    ]


def describe(rule: Rule) -> str:
    """Write what a rule demands and by which sources."""
    return f"{rule.row}. {rule.says}. Sources: {rule.sources}."


def _resource_policy(
    rule: ResourceRule, declared: dict[str, Resource]
) -> pulumi_policy.ResourceValidationPolicy:
    def validate(
        args: pulumi_policy.ResourceValidationArgs, report: pulumi_policy.ReportViolation
    ) -> None:
        resource = Resource(
            urn=args.urn,
            type=args.resource_type,
            inputs=args.props,
            protect=args.opts.protect,
        )
        declared[args.urn] = resource
        for message in rule.judge(resource):
            report(message, None)

    return pulumi_policy.ResourceValidationPolicy(
        name=rule.name,
        description=describe(rule),
        validate=validate,
        enforcement_level=pulumi_policy.EnforcementLevel.MANDATORY,
    )


def _stack_policy(
    rule: StackRule, declared: Mapping[str, Resource]
) -> pulumi_policy.StackValidationPolicy:
    def validate(
        args: pulumi_policy.StackValidationArgs, report: pulumi_policy.ReportViolation
    ) -> None:
        for finding in rule.judge(_stack_of(args.resources, declared)):
            report(finding.message, finding.urn or None)

    return pulumi_policy.StackValidationPolicy(
        name=rule.name,
        description=describe(rule),
        validate=validate,
        enforcement_level=pulumi_policy.EnforcementLevel.MANDATORY,
    )


def _stack_of(
    shown: Sequence[pulumi_policy.PolicyResource], declared: Mapping[str, Resource]
) -> Stack:
    outputs: Mapping[str, Any] = {}
    resources: list[Resource] = []
    for each in shown:
        if each.resource_type == STACK_TYPE:
            outputs = cast("Mapping[str, Any]", _known(each.props))
        noted = declared.get(each.urn)
        resources.append(
            Resource(
                urn=each.urn,
                type=each.resource_type,
                inputs=each.props if noted is None else noted.inputs,
                protect=each.opts.protect,
                made_from={
                    key: tuple(source.urn for source in sources)
                    for key, sources in each.property_dependencies.items()
                },
            )
        )
    name = resources[0].stack if resources else ""
    is_up = any(map(_is_in_azure, shown))
    return Stack(name=name, resources=tuple(resources), outputs=outputs, is_up=is_up)


def _is_in_azure(resource: pulumi_policy.PolicyResource) -> bool:
    """Tell whether Azure has answered for a resource: no program knows the type that it gives."""
    if not resource.resource_type.startswith(AZURE):
        return False
    try:
        return str(resource.props.get("type")).startswith("Microsoft.")
    except UnknownValueError:
        return False


def _known(value: Any) -> Any:
    """Drop the parts of a value that only the deployment will know."""
    if isinstance(value, Mapping):
        known: dict[str, Any] = {}
        mapping = cast("Mapping[str, Any]", value)
        for key in mapping:
            try:
                known[key] = _known(mapping[key])
            except UnknownValueError:
                continue
        return known
    if isinstance(value, Sequence) and not isinstance(value, str):
        elements: list[Any] = []
        sequence = cast("Sequence[Any]", value)
        for index in range(len(sequence)):
            try:
                elements.append(_known(sequence[index]))
            except UnknownValueError:
                continue
        return elements
    return value
