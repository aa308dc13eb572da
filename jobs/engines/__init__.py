"""The engines and their runs by name; each module loads only when its engine is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    module, _, name = table[environment.engine].partition(":")
    return getattr(import_module(module), name)
