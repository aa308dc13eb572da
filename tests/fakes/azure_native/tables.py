"""Finds the tables of Microsoft's models, made once per machine and lock (tests/environments)."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fakes.azure_native.kinds import KINDS

ANSWER = "?answer"  # follows a token where its answer is of another class
FOUND = "TRAINYARD_AZURE_MODELS"  # set for the provider; empty where it is not to judge

PACKAGES = {
    "actiongroups": "azure.mgmt.monitor.v2023_01_01",
    "applicationinsights": "azure.mgmt.applicationinsights.v2020_02_02",
    "authorization": "azure.mgmt.authorization.v2022_04_01",
    "consumption": "azure.mgmt.consumption",
    "containerregistry": "azure.mgmt.containerregistry.v2023_01_01_preview",
    "keyvault": "azure.mgmt.keyvault",
    "locks": "azure.mgmt.resource.locks.v2016_09_01",
    "loganalytics": "azure.mgmt.loganalytics",
    # The management client's last release knows no managed network; this one is the command line's.
    "machinelearning": "azure.ai.ml._restclient.v2025_01_01_preview",
    "metricalerts": "azure.mgmt.monitor.v2018_03_01",
    "monitor": "azure.mgmt.monitor.v2021_05_01_preview",
    "msi": "azure.mgmt.msi.v2024_11_30",
    "network": "azure.mgmt.network",
    "policy": "azure.mgmt.resource.policy.v2023_04_01",
    "privatedns": "azure.mgmt.privatedns",
    "resources": "azure.mgmt.resource.resources.v2025_04_01",
    "storage": "azure.mgmt.storage",
}


def find_tables() -> Path:
    """The file with the tables, made where it is not there yet (seconds; the index is asked).

    Raises EnvironmentFailure where the package index is out of reach.
    """
    from tests.environments.tables import make_tables

    return make_tables("".join(f"{line}\n" for token in KINDS for line in _lines(token)))


def _lines(token: str) -> Iterator[str]:
    kind = KINDS[token]
    wheel, _, root = kind.model.partition(":")
    yield f"{token} {PACKAGES[wheel]} {root} {kind.path}"
    if kind.answer is not None:
        wheel, _, root = kind.answer.partition(":")
        yield f"{token}{ANSWER} {PACKAGES[wheel]} {root} -"


@functools.cache
def read_tables() -> dict[str, Any]:
    """The tables by token, as tests/environments/azure_models.py describes them."""
    found = os.environ.get(FOUND)
    return json.loads((Path(found) if found else find_tables()).read_text())
