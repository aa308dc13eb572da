"""The engines and their runs by name; each module loads only when its engine is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jobs.errors import LaunchError

if TYPE_CHECKING:
    from jobs.engines.base import Engine
    from jobs.spec import Environment

ENGINES = {
    "local": "jobs.engines.local:LocalEngine",
    "azureml": "jobs.engines.azureml:AzureMlEngine",
}
# Where an engine's runs are found; all have the methods of jobs.runs.RunStore that read.
STORES = {
    "local": "jobs.runs:RunStore",
    "azureml": "jobs.azure_ml.runs:CloudRuns",
}


def load_engine(environment: Environment) -> Engine:
    """Make the engine that the environment names."""
    return _load(ENGINES, environment)(environment)


def load_store(environment: Environment) -> Any:
    """Open the runs of the environment."""
    return _load(STORES, environment).of(environment)


def _load(table: dict[str, str], environment: Environment) -> Any:
    require_engine(environment)
    module, _, name = table[environment.engine].partition(":")
    return getattr(import_module(module), name)


def require_engine(environment: Environment) -> None:
    """Raise LaunchError where this version cannot run jobs on the environment, nor has any run."""
    if environment.engine not in ENGINES:
        message = (
            f"this version runs no jobs on stack `{environment.stack}`: "
            f"it has no engine `{environment.engine}`"
        )
        hint = f"it has: {', '.join(ENGINES)}; `launch env` and `launch data` work on every stack"
        raise LaunchError(message, hint=hint)
