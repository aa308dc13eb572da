"""Builds hooks that run before a resource is created: a wait, and a queue of creations.

The engine calls them in an `up` that creates the resource. A preview, an update and a destroy call
none of them, and nothing of them is in Azure.
"""

from __future__ import annotations

import asyncio

import pulumi


def wait_before_creation(name: str, seconds: int, reason: str) -> pulumi.ResourceHookBinding | None:
    """Have the engine wait some seconds before it creates a resource; None for no time."""
    if not seconds:
        return None

    async def wait(args: pulumi.ResourceHookArgs) -> None:
        pulumi.log.info(f"{args.name}: waiting {seconds} s: {reason}")
        await asyncio.sleep(seconds)

    return pulumi.ResourceHookBinding(before_create=[pulumi.ResourceHook(name, wait)])


class CreationQueue:
    """Has the engine create resources one after the other, in any order.

    A chain of `depends_on` would hold back all that come after a resource that Azure refuses, and
    would order updates and deletions, too.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = asyncio.Lock()
        self._creating: str | None = None

    def hooks(self) -> pulumi.ResourceHookBinding:
        """Build the hooks that every resource of the queue gets."""
        return pulumi.ResourceHookBinding(
            before_create=[pulumi.ResourceHook(f"{self._name}-begin", self._begin)],
            after_create=[pulumi.ResourceHook(f"{self._name}-end", self._end)],
            on_error=[pulumi.ErrorHook(f"{self._name}-error", self._end_failed)],
        )

    async def _begin(self, args: pulumi.ResourceHookArgs) -> None:
        await self._turn.acquire()
        self._creating = args.urn

    def _end(self, args: pulumi.ResourceHookArgs) -> None:
        self._release(args.urn)

    def _end_failed(self, args: pulumi.ErrorHookArgs) -> bool:
        self._release(args.urn)
        return False  # nothing is tried again

    def _release(self, urn: str) -> None:
        # A failed update or deletion ends here as well, and had no turn.
        if self._creating == urn:
            self._creating = None
            self._turn.release()
