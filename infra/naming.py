"""Names all resources of a stack in plain text before they exist, so that a preview shows them."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

# Tags that every resource has, and those of clusters alone beside them.
TAGS = ("project", "stack", "stage", "owner")
CLUSTER_TAG, MIN_NODES_TAG = "cluster", "min-nodes"
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
    existing_group: str | None = None  # the id of a group that is there already

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
        return self.group_id.rpartition("/")[2]

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
    def audit(self) -> str:
        """The Log Analytics workspace of the audit, whose lines are never dropped."""
        return f"{self.log_analytics}-audit"

    @property
    def action_group(self) -> str:
        """The receivers of alerts."""
        return f"ag-{self.prefix}-{self.stack}"

    def alert(self, name: str) -> str:
        """Name the rule of an alert from its key in the stack."""
        return f"alert-{self.prefix}-{self.stack}-{name}"

    @property
    def app_insights(self) -> str:
        """The Application Insights component."""
        return f"appi-{self.prefix}-{self.stack}"

    @property
    def network(self) -> str:
        """The virtual network of private endpoints and clients."""
        return f"vnet-{self.prefix}-{self.stack}"

    @property
    def shared_subnet(self) -> str:
        """The subnet of private endpoints in a network that other stacks may share."""
        return f"snet-{self.prefix}-{self.stack}"

    @property
    def workspace_identity(self) -> str:
        """The identity of the workspace."""
        return self.identity("workspace")

    def identity(self, name: str) -> str:
        """Name the identity of the workspace or of clusters from its key in the stack."""
        return f"id-{self.prefix}-{self.stack}-{name}"

    @property
    def budget(self) -> str:
        """The monthly budget."""
        return f"budget-{self.prefix}-{self.stack}"

    @property
    def group_id(self) -> str:
        """The resource group's id."""
        own = f"rg-{self.prefix}-{self.stack}"
        return self.existing_group or f"/subscriptions/{self.subscription_id}/resourceGroups/{own}"

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
