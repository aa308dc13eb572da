"""Tells in which private DNS zones the names of each kind of private endpoint are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

EndpointGroup = Literal["blob", "file", "vault", "registry", "amlworkspace"]

# https://learn.microsoft.com/azure/private-link/private-endpoint-dns, read 2026-11-21.
ZONES: Mapping[EndpointGroup, tuple[str, ...]] = {
    "blob": ("privatelink.blob.core.windows.net",),
    "file": ("privatelink.file.core.windows.net",),
    "vault": ("privatelink.vaultcore.azure.net",),
    "registry": ("privatelink.azurecr.io",),
    "amlworkspace": ("privatelink.api.azureml.ms", "privatelink.notebooks.azure.net"),
}
