"""A Pulumi engine that records what a program declares, and makes nothing."""

from __future__ import annotations

from collections.abc import Callable
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
    """Answers every declaration with its own inputs as outputs."""

    def __init__(self) -> None:
        self.declared: list[Declared] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.declared.append(Declared(args.typ, args.name, dict(args.inputs)))
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"the program asked for {args.token}")


def declare(program: Callable[[], Any]) -> tuple[Any, list[Declared]]:
    """Run a program; what its result resolves to, and all that it declared."""
    engine = RecordingEngine()
    set_mocks(engine, project="trainyard", stack="local")
    resolved: list[Any] = []

    @test
    def run() -> pulumi.Output[Any]:
        return pulumi.Output.from_input(program()).apply(resolved.append)

    run()
    return resolved[0], engine.declared
