"""Makes wrong copies of a stack's resources: values turned, dropped, resources gone or added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.policy.rules import Resource, ResourceRule, Stack, look_up
from tests.infra.policy.wrong_values import WRONG, WRONG_IN_STAGE

DROP = object()
GROUP_ID = "/subscriptions/11111111-1111-4111-8111-111111111111/resourceGroups/elsewhere"


@dataclass(frozen=True)
class Mutant:
    """A stack with one thing wrong: what it is, and the resource that holds it, if it is one."""

    title: str
    stack: Stack
    changed: Resource | None


Where = Callable[[Resource], bool]
Make = Callable[[Stack], Iterator[Mutant]]


def of_property(rule: ResourceRule, whole: Stack) -> Iterator[Mutant]:
    wrong = (
        *WRONG.get(rule.name, ()),
        *WRONG_IN_STAGE.get(whole.stage, {}).get(rule.name, ()),
    )
    for each in whole.of(*rule.types):
        now = look_up(each.inputs, rule.path)
        turned = (not now,) if isinstance(now, bool) and not wrong else ()
        for value in (*wrong, *turned):
            yield _replaced(whole, each, rule.path, value)
        if now is not None and now != []:
            yield _replaced(whole, each, rule.path, DROP)


def edit(what: str, path: str, value: Any, *, where: Where = lambda _: True) -> Make:
    """One mutant a resource: its value at a path is another."""

    def make(whole: Stack) -> Iterator[Mutant]:
        for each in whole.of(what):
            if where(each):
                wrong = value(each) if callable(value) else value
                yield _replaced(whole, each, path, wrong)

    return make


def drop(what: str, path: str, *, where: Where = lambda _: True) -> Make:
    """One mutant a resource: it has no value at a path."""
    return edit(what, path, DROP, where=where)


def remove(what: str, *, where: Where = lambda _: True) -> Make:
    """One mutant a resource: it is not there."""

    def make(whole: Stack) -> Iterator[Mutant]:
        for gone in whole.of(what):
            if where(gone):
                kept = tuple(each for each in whole.resources if each is not gone)
                yield Mutant(f"{gone.name} removed", _with(whole, kept), None)

    return make


def add(what: str, name: str, inputs: Mapping[str, Any], **options: Any) -> Make:
    """One mutant: a resource more; an input may be made from the stack."""

    def make(whole: Stack) -> Iterator[Mutant]:
        urn = f"urn:pulumi:{whole.name}::trainyard::{what}::{name}"
        # As everything else in prod.
        options.setdefault("protect", True)
        made = {k: each(whole) if callable(each) else each for k, each in inputs.items()}
        extra = Resource(urn=urn, type=what, inputs=made, **options)
        yield Mutant(f"{name} added", _with(whole, (*whole.resources, extra)), extra)

    return make


def unprotected(*types: str) -> Make:
    """One mutant a resource: a destroy may take it."""

    def make(whole: Stack) -> Iterator[Mutant]:
        for each in whole.of(*types):
            changed = Resource(
                urn=each.urn,
                type=each.type,
                inputs=each.inputs,
                protect=False,
                made_from=each.made_from,
            )
            yield Mutant(f"{each.name} unprotected", _swapped(whole, each, changed), changed)

    return make


def everything_unprotected(whole: Stack) -> Iterator[Mutant]:
    """The platform's option is off."""
    resources = tuple(
        Resource(
            urn=each.urn,
            type=each.type,
            inputs=each.inputs,
            protect=False,
            made_from=each.made_from,
        )
        for each in whole.resources
    )
    yield Mutant("everything unprotected", _with(whole, resources), None)


def retyped(what: str, other: str) -> Make:
    """One mutant a resource: it is of another type."""

    def make(whole: Stack) -> Iterator[Mutant]:
        for each in whole.of(what):
            changed = Resource(urn=each.urn, type=other, inputs=each.inputs, protect=each.protect)
            yield Mutant(f"{each.name} retyped", _swapped(whole, each, changed), changed)

    return make


def output(path: str, value: str) -> Make:
    """One mutant: an output more."""

    def make(whole: Stack) -> Iterator[Mutant]:
        outputs = {**whole.outputs, path: {"inner": [value]}}
        changed = Stack(name=whole.name, resources=whole.resources, outputs=outputs)
        yield Mutant(f"output {path}", changed, None)

    return make


def _replaced(whole: Stack, each: Resource, path: str, value: Any) -> Mutant:
    changed = Resource(
        urn=each.urn,
        type=each.type,
        inputs=set_path(each.inputs, path.split("."), value),
        protect=each.protect,
        made_from=each.made_from,
    )
    shown = "dropped" if value is DROP else f"= {value!r}"
    return Mutant(f"{each.name} {path} {shown}", _swapped(whole, each, changed), changed)


def set_path(inputs: Any, keys: list[str], value: Any) -> Any:
    if not keys:
        return value
    if isinstance(inputs, list):
        index = int(keys[0])
        return [*inputs[:index], set_path(inputs[index], keys[1:], value), *inputs[index + 1 :]]
    copy = dict(inputs or {})
    if len(keys) == 1 and value is DROP:
        copy.pop(keys[0], None)
    else:
        copy[keys[0]] = set_path(copy.get(keys[0]), keys[1:], value)
    return copy


def _swapped(whole: Stack, old: Resource, new: Resource) -> Stack:
    return _with(whole, tuple(new if each is old else each for each in whole.resources))


def _with(whole: Stack, resources: tuple[Resource, ...]) -> Stack:
    return Stack(name=whole.name, resources=resources, outputs=whole.outputs)
