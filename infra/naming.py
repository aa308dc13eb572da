"""Names all resources of a stack in plain text before they exist, so that a preview shows them."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

# Of our own making, so that names of role assignments are equal on every run and nobody else's.
_ASSIGNMENTS = uuid.UUID("5b9d7d3e-52c1-4d2b-9a54-6f0c6f1f7a10")


def physical_name(name: str, fixed: Mapping[str, str | int]) -> str:
    """Append a digest of what cannot change (`gpu-1a2b3c`), so that a change makes a new resource."""
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()
    # Azure ML takes no compute whose name ends in a dash and digits alone.
    windows = (digest[start : start + 6] for start in range(len(digest)))
    return f"{name}-{next(window for window in windows if not window.isdigit())}"


@dataclass(frozen=True, kw_only=True)
class Names:
    """Names and ids of a cloud stack's resources in Azure.

    Four names are one for all of Azure (both accounts, vault, registry): they carry four hex
    digits of subscription and stack, and only the stage of the stack's name, to stay within
    Azure's 24 characters for a `prefix` of 8. Vaults and workspaces are kept for days after their
    deletion and hold their names: a new `generation` gives others.
    """

    prefix: str
    stack: str
    generation: int
    subscription_id: str

    @property
    def stage(self) -> str:
        """The stage that the stack's name begins with."""
        return self.stack.partition("-")[0]

    @property
    def digest(self) -> str:
        """Digits that tell this stack's global names from those of other stacks and subscriptions."""
        text = f"{self.subscription_id}/{self.stack}"
        return hashlib.sha256(text.encode()).hexdigest()[:4]

    @property
    def resource_group(self) -> str:
        """The resource group of the stack."""
        return f"rg-{self.prefix}-{self.stack}"

    @property
    def data_account(self) -> str:
        """The storage account of data and runs."""
        return f"st{self.prefix}{self.stage}data{self.digest}"

    @property
    def workspace_account(self) -> str:
        """The storage account of the workspace's own files."""
        return f"st{self.prefix}{self.stage}ml{self.digest}"

    @property
    def key_vault(self) -> str:
        """The vault, of this generation."""
        return f"kv-{self.prefix}-{self.stage}-{self.generation}-{self.digest}"

    @property
    def registry(self) -> str:
        """The container registry."""
        return f"cr{self.prefix}{self.stage}{self.digest}"

    @property
    def workspace(self) -> str:
        """The Azure ML workspace, of this generation."""
        return f"mlw-{self.prefix}-{self.stack}-{self.generation}"

    @property
    def log_analytics(self) -> str:
        """The Log Analytics workspace."""
        return f"log-{self.prefix}-{self.stack}"

    @property
    def app_insights(self) -> str:
        """The Application Insights component."""
        return f"appi-{self.prefix}-{self.stack}"

    @property
    def network(self) -> str:
        """The virtual network of private endpoints and clients."""
        return f"vnet-{self.prefix}-{self.stack}"

    @property
    def workspace_identity(self) -> str:
        """The identity of the workspace."""
        return f"id-{self.prefix}-{self.stack}-workspace"

    @property
    def cluster_identity(self) -> str:
        """The identity of the clusters' nodes."""
        return f"id-{self.prefix}-{self.stack}-cluster"

    @property
    def budget(self) -> str:
        """The monthly budget."""
        return f"budget-{self.prefix}-{self.stack}"

    @property
    def group_id(self) -> str:
        """The resource group's id."""
        return f"/subscriptions/{self.subscription_id}/resourceGroups/{self.resource_group}"

    def id_of(self, type_: str, name: str) -> str:
        """Build the id of a resource in the group from its type and name."""
        return f"{self.group_id}/providers/{type_}/{name}"

    def role_definition_id(self, guid: str) -> str:
        """Build the id of a built-in role."""
        return (
            f"/subscriptions/{self.subscription_id}"
            f"/providers/Microsoft.Authorization/roleDefinitions/{guid}"
        )

    def assignment_name(self, *parts: str) -> str:
        """Derive the GUID of a role assignment from scope, role and principal."""
        return str(uuid.uuid5(_ASSIGNMENTS, "/".join((self.group_id, *parts))))
