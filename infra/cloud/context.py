"""Holds what every part of a cloud stack needs: settings, names, tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.cloud.settings import CloudSettings
from infra.naming import Names


@dataclass(frozen=True, kw_only=True)
class Context:
    """Settings, names and tags of one stack, made once by the platform; plain text at preview."""

    settings: CloudSettings
    names: Names
    tags: Mapping[str, str]

    @property
    def is_private(self) -> bool:
        """True where the parts are reached through private endpoints only."""
        return self.settings.network == "private"


def make_context(settings: CloudSettings, *, subscription_id: str) -> Context:
    """Derive the context of a stack in a subscription."""
    names = Names(
        prefix=settings.name,
        stack=settings.stack,
        generation=settings.generation,
        subscription_id=subscription_id,
        existing_group=settings.existing.resource_group,
    )
    tags = {
        **settings.tags,
        "project": "trainyard",
        "stack": settings.stack,
        "stage": settings.stage,
        "owner": settings.owner,
    }
    return Context(settings=settings, names=names, tags=tags)
