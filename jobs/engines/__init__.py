"""Load engines and their runs by name; each module loads only when its engine is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment
    from jobs.engines.base import Engine, Runs

ENGINES = {
    "local": "jobs.engines.local.engine:LocalEngine",
    "azureml": "jobs.engines.azure_ml.engine:AzureMlEngine",
    "azureml_v1": "jobs.engines.azure_ml_v1.engine:AzureMlV1Engine",
}
# An engine's runs, for verbs that only read.
STORES = {
    "local": "jobs.engines.local.runs:LocalRuns",
    "azureml": "jobs.engines.azure_ml.runs:CloudRuns",
    "azureml_v1": "jobs.engines.azure_ml_v1.runs:V1Runs",
}


def load_engine(environment: Environment) -> Engine:
    """Make the engine that the environment names."""
    return _load(ENGINES, environment)(environment)


def load_store(environment: Environment) -> Runs:
    """Open the runs of the environment."""
    return _load(STORES, environment).of(environment)


def _load(table: dict[str, str], environment: Environment) -> Any:
    module, _, name = table[environment.engine].partition(":")
    return getattr(import_module(module), name)
