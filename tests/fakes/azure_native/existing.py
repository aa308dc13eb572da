"""Puts resources into the stand-in's subscription that no stack has made."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.azure_native.kinds import KINDS, Kind, read_path
from tests.fakes.azure_native.service import make_outputs
from tests.fakes.azure_native.store import Store

LOCATION = "swedencentral"
# Settings under `existing:` that the program reads from Azure.
READ = ("resource_group", "log_analytics", "registry", "key_vault")


def put(folder: Path, *ids: str, linked: str = "") -> None:
    """Have these ids be there, each of the type that it says; zones link to the network `linked`."""
    with Store(folder).writing() as state:
        for resource_id in ids:
            kind = _kind_of(resource_id)
            inputs: dict[str, Any] = {**read_path(kind, resource_id), "location": LOCATION}
            if kind.token.endswith(":Registry"):
                inputs["sku"] = {"name": "Premium"}
            if kind.token.endswith(":VirtualNetworkLink"):
                inputs["virtualNetwork"] = {"id": linked}
            state["resources"][resource_id.lower()] = {
                "id": resource_id,
                "token": kind.token,
                "inputs": inputs,
                "outputs": make_outputs(kind, resource_id, inputs),
                "created": time.time(),
            }


def put_settings(folder: Path, existing: Mapping[str, Any]) -> None:
    """Have the resources be there that a stack's settings name under `existing`."""
    put(folder, *(existing[key] for key in READ if key in existing))


def _kind_of(resource_id: str) -> Kind:
    (found,) = (kind for kind in KINDS.values() if read_path(kind, resource_id))
    return found
