"""The engines by name; each module loads only when its engine is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from jobs.errors import LaunchError

if TYPE_CHECKING:
    from jobs.engines.base import Engine
    from jobs.spec import Environment

ENGINES = {
    "local": "jobs.engines.local:LocalEngine",
}


def load_engine(environment: Environment) -> Engine:
    """Make the engine that the environment names."""
    try:
        module, _, name = ENGINES[environment.engine].partition(":")
    except KeyError:
        message = f"stack `{environment.stack}` wants the engine `{environment.engine}`"
        raise LaunchError(message, hint=f"this version has: {', '.join(ENGINES)}") from None
    return getattr(import_module(module), name)(environment)
