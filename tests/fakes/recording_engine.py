"""A Pulumi engine that records what a program declares, and makes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.runtime import Mocks, set_mocks, test


@dataclass(frozen=True)
class Declared:
    """One resource as the program declared it."""

    type: str
    name: str
    inputs: dict[str, Any]


class RecordingEngine(Mocks):
    """Answers every declaration with its outputs, and calls with what it was given."""

    def __init__(
        self,
        answers: Mapping[str, dict[str, Any]],
        outputs_of: Callable[[Declared], dict[str, Any]],
    ) -> None:
        self.answers = answers
        self.outputs_of = outputs_of
        self.declared: list[Declared] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        declared = Declared(args.typ, args.name, dict(args.inputs))
        self.declared.append(declared)
        return f"{args.name}-id", self.outputs_of(declared)

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        assert args.token in self.answers, f"the program asked for {args.token}"
        return self.answers[args.token]


def declare(
    program: Callable[[], Any],
    *,
    stack: str = "local",
    answers: Mapping[str, dict[str, Any]] | None = None,
    outputs_of: Callable[[Declared], dict[str, Any]] = lambda declared: dict(declared.inputs),
) -> tuple[Any, list[Declared]]:
    """Run a program; what its result resolves to, and all that it declared.

    `answers` are those of the provider's functions by token; a resource's outputs are its inputs
    where `outputs_of` does not say otherwise.
    """
    _have_loop()
    engine = RecordingEngine(answers or {}, outputs_of)
    set_mocks(engine, project="trainyard", stack=stack)
    resolved: list[Any] = []

    @test
    def run() -> pulumi.Output[Any]:
        return pulumi.Output.from_input(program()).apply(resolved.append)

    run()
    return resolved[0], engine.declared


def _have_loop() -> None:
    """Pulumi asks for the thread's event loop, and an `asyncio.run` of another test leaves none."""
    try:
        asyncio.get_event_loop_policy().get_event_loop()
    except RuntimeError:
        asyncio.set_event_loop(asyncio.new_event_loop())
