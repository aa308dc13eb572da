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
    require_engine(environment)
    module, _, name = ENGINES[environment.engine].partition(":")
    return getattr(import_module(module), name)(environment)


def require_engine(environment: Environment) -> None:
    """Raise LaunchError where this version cannot run jobs on the environment, nor has any run."""
    if environment.engine not in ENGINES:
        message = (
            f"this version runs no jobs on stack `{environment.stack}`: "
            f"it has no engine `{environment.engine}`"
        )
        hint = f"it has: {', '.join(ENGINES)}; `launch env` and `launch data` work on every stack"
        raise LaunchError(message, hint=hint)
