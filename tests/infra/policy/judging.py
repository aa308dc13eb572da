"""Judges declared stacks, and wrong copies of them, by all rules in this process."""

from __future__ import annotations

from collections.abc import Iterable

from infra.policy import pack
from infra.policy.access import ASSIGNMENT
from infra.policy.rules import Resource, ResourceRule, Stack
from tests.fakes.recording_engine import Declared
from tests.infra.cloud_declared import declare_stack


def declared(stack: str, **changed: object) -> Stack:
    """List a program's declarations, with the options that a recording engine does not see."""
    seen = declare_stack(stack, **changed)
    urns = {each.name: f"urn:pulumi:{stack}::trainyard::{each.type}::{each.name}" for each in seen}
    return Stack(
        name=stack,
        resources=tuple(
            Resource(
                urn=urns[each.name],
                type=each.type,
                inputs=each.inputs,
                protect=not each.type.endswith(":Compute"),
                made_from=identity_of(each, urns.values()),
            )
            for each in seen
        ),
    )


def identity_of(each: Declared, urns: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The identity whose principal an assignment takes: the recording engine names it."""
    if each.type != ASSIGNMENT:
        return {}
    identity = str(each.inputs["principalId"]).removeprefix("principal-of-")
    return {"principalId": tuple(urn for urn in urns if urn.endswith(f"::{identity}"))}


def broken(stack: Stack, changed: Resource | None = None) -> set[str]:
    """The rules that a stack breaks; of one that breaks none, by what was changed of it."""
    judged = stack.resources if changed is None else (changed,)
    return {
        rule.name
        for rule in pack.RULES
        if (
            any(rule.judge(each) for each in judged)
            if isinstance(rule, ResourceRule)
            else rule.judge(stack)
        )
    }
