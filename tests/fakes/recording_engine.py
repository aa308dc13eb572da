"""A Pulumi engine that records what a program declares, and makes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
    engine = RecordingEngine(answers or {}, outputs_of)
    resolved: list[Any] = []

    @test
    def run() -> pulumi.Output[Any]:
        return pulumi.Output.from_input(program()).apply(resolved.append)

    with loops_closed():
        set_mocks(engine, project="trainyard", stack=stack)
        run()
    return resolved[0], engine.declared


class _Remembered(asyncio.DefaultEventLoopPolicy):
    def __init__(self) -> None:
        super().__init__()
        self.loops: list[asyncio.AbstractEventLoop] = []

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        self.loops.append(loop)
        return loop


@contextmanager
def loops_closed() -> Iterator[None]:
    """Have an event loop for Pulumi, and close it and those that Pulumi makes in its threads.

    It leaves them open; whatever test collects them as garbage would be warned for it.
    """
    before, policy = asyncio.get_event_loop_policy(), _Remembered()
    asyncio.set_event_loop_policy(policy)
    loop = policy.new_event_loop()
    policy.set_event_loop(loop)
    try:
        yield
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        for each in policy.loops:
            each.close()
        asyncio.set_event_loop_policy(before)
