"""Declares a storage account without keys or public access, with recovery of deleted blobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pulumi
from pulumi_azure_native import storage

from infra.cloud.access import Scope
from infra.cloud.context import Context
from infra.cloud.interfaces import Interfaces
from infra.cloud.monitoring import STORAGE_CATEGORIES
from infra.cloud.resource_options import replaced_with

if TYPE_CHECKING:
    from pulumi_azure_native.resources import ResourceGroup

    from infra.cloud.network import Connection
    from infra.cloud.settings import Stage
    from infra.cloud.zones import EndpointGroup

Purpose = Literal["data", "workspace"]

# Key of an account's lock and logs, and its private endpoints.
_KEYS: Mapping[Purpose, str] = {"data": "data", "workspace": "workspace-storage"}
_ENDPOINTS: Mapping[Purpose, Mapping[str, EndpointGroup]] = {
    "data": {"data-blob": "blob"},
    "workspace": {"workspace-storage-blob": "blob", "workspace-storage-file": "file"},
}

# Under these names in their containers lie what is thrown away and what grows old: a lifecycle
# rule takes literal prefixes that begin with a container's name, no pattern.
TEMPORARY = "tmp/"
CHECKPOINTS = "checkpoints/"
RUNS_CONTAINER = "runs"

# The container that Azure ML makes in the workspace's account for what runs write.
_AZURE_ML_RUNS = "azureml/"


@dataclass(frozen=True, kw_only=True)
class _Lifecycle:
    """Redundancy, versions and retention of a stage's data."""

    sku: str
    deleted_days: int
    old_days: int
    is_versioned: bool
    copy_scope: str | None
    sas_action: str
    is_encrypted_twice: bool


_LIFECYCLES: Mapping[Stage, _Lifecycle] = {
    "dev": _Lifecycle(
        sku="Standard_LRS",
        deleted_days=7,
        old_days=7,
        is_versioned=False,
        copy_scope=None,
        sas_action="Log",
        is_encrypted_twice=False,
    ),
    "test": _Lifecycle(
        sku="Standard_ZRS",
        deleted_days=7,
        old_days=14,
        is_versioned=False,
        copy_scope="AAD",
        sas_action="Block",
        is_encrypted_twice=False,
    ),
    "prod": _Lifecycle(
        sku="Standard_GZRS",
        deleted_days=30,
        old_days=90,
        is_versioned=True,
        copy_scope="AAD",
        sas_action="Block",
        is_encrypted_twice=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class StorageArgs:
    """The account's name and purpose, and its containers (the workspace makes its own)."""

    context: Context
    account_name: str
    containers: tuple[str, ...]
    purpose: Purpose
    resource_group: ResourceGroup
    interfaces: Interfaces


class Storage(pulumi.ComponentResource):
    """The account, its blob and file services' settings, its containers and its lifecycle."""

    def __init__(
        self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Storage", name, None, opts)
        context = args.context
        lifecycle = _LIFECYCLES[context.settings.stage]
        group = context.names.resource_group
        self.account_name = args.account_name
        self.account_id = context.names.id_of(
            "Microsoft.Storage/storageAccounts", args.account_name
        )
        self.account = storage.StorageAccount(
            f"{name}-account",
            account_name=args.account_name,
            resource_group_name=group,
            location=context.settings.location,
            kind="StorageV2",
            sku=storage.SkuArgs(name=lifecycle.sku),
            access_tier=storage.AccessTier.HOT,
            allow_blob_public_access=False,
            allow_cross_tenant_replication=False,
            allow_shared_key_access=False,
            allowed_copy_scope=lifecycle.copy_scope,
            default_to_o_auth_authentication=True,
            enable_https_traffic_only=True,
            enable_nfs_v3=False,
            encryption=storage.EncryptionArgs(
                key_source="Microsoft.Storage",
                require_infrastructure_encryption=lifecycle.is_encrypted_twice,
            ),
            # Versions and soft delete of blobs do not go with a hierarchical namespace.
            is_hns_enabled=False,
            is_local_user_enabled=False,
            is_sftp_enabled=False,
            minimum_tls_version="TLS1_2",
            network_rule_set=_rules(context),
            public_network_access="Disabled" if context.is_private else "Enabled",
            sas_policy=storage.SasPolicyArgs(
                sas_expiration_period="1.00:00:00", expiration_action=lifecycle.sas_action
            ),
            tags=context.tags,
            opts=replaced_with(self, args.resource_group),
        )
        blobs = self._blob_service(name, args, lifecycle)
        self.containers = self._containers(name, args, blobs)
        files = storage.FileServiceProperties(
            f"{name}-files",
            account_name=args.account_name,
            resource_group_name=group,
            file_services_name="default",
            share_delete_retention_policy=_deleted(lifecycle),
            opts=replaced_with(self, self.account),
        )
        ageing = storage.ManagementPolicy(
            f"{name}-lifecycle",
            account_name=args.account_name,
            resource_group_name=group,
            management_policy_name="default",
            policy=storage.ManagementPolicySchemaArgs(rules=_lifecycle(args, lifecycle)),
            opts=replaced_with(self, self.account, blobs),
        )
        # Azure refuses a private endpoint while another write to the account is under way.
        settled = [*self.containers.values(), files, ageing]
        self.scope = Scope(id=self.account_id, resource=self.account)
        self.endpoints = self._attach(args, settled)
        self.ready: list[pulumi.Resource] = [
            *settled,
            *(each.names for each in self.endpoints.values()),
        ]
        self.register_outputs({"account": args.account_name})

    def container_scope(self, container: str) -> Scope:
        """Give the scope of roles on one container."""
        inside = f"{self.account_id}/blobServices/default/containers/{container}"
        return Scope(id=inside, resource=self.containers[container])

    def _attach(
        self, args: StorageArgs, settled: Sequence[pulumi.Resource]
    ) -> Mapping[EndpointGroup, Connection]:
        key, interfaces = _KEYS[args.purpose], args.interfaces
        blobs = f"{self.account_id}/blobServices/default"
        interfaces.log(key, blobs, STORAGE_CATEGORIES, after=settled)
        interfaces.lock(key, self.account_id, after=settled)
        return interfaces.connect(self.account_id, _ENDPOINTS[args.purpose], after=settled)

    def _blob_service(
        self, name: str, args: StorageArgs, lifecycle: _Lifecycle
    ) -> storage.BlobServiceProperties:
        return storage.BlobServiceProperties(
            f"{name}-blobs",
            account_name=args.account_name,
            resource_group_name=args.context.names.resource_group,
            blob_services_name="default",
            cors=_studio() if args.purpose == "workspace" else None,
            delete_retention_policy=_deleted(lifecycle),
            container_delete_retention_policy=_deleted(lifecycle),
            is_versioning_enabled=lifecycle.is_versioned,
            opts=replaced_with(self, self.account),
        )

    def _containers(
        self, name: str, args: StorageArgs, blobs: storage.BlobServiceProperties
    ) -> dict[str, storage.BlobContainer]:
        return {
            container: storage.BlobContainer(
                f"{name}-{container}",
                account_name=args.account_name,
                resource_group_name=args.context.names.resource_group,
                container_name=container,
                public_access=storage.PublicAccess.NONE,
                opts=replaced_with(
                    self, self.account, blobs, retained=args.context.settings.stage == "prod"
                ),
            )
            for container in args.containers
        }


def _rules(context: Context) -> storage.NetworkRuleSetArgs:
    """Build the firewall: trusted services of Azure and, on a public account, the allowed
    addresses.
    """
    return storage.NetworkRuleSetArgs(
        default_action=storage.DefaultAction.DENY,
        bypass="AzureServices",
        ip_rules=[
            storage.IPRuleArgs(i_p_address_or_range=address, action=storage.Action.ALLOW)
            for address in context.settings.allowed_ips
        ],
    )


def _deleted(lifecycle: _Lifecycle) -> storage.DeleteRetentionPolicyArgs:
    return storage.DeleteRetentionPolicyArgs(enabled=True, days=lifecycle.deleted_days)


def _studio() -> storage.CorsRulesArgs:
    """Build what Azure ML adds to its account for its studio; a write without it removes it."""
    return storage.CorsRulesArgs(
        cors_rules=[
            storage.CorsRuleArgs(
                allowed_origins=["https://ml.azure.com", "https://*.ml.azure.com"],
                allowed_methods=["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"],
                allowed_headers=["*"],
                exposed_headers=["*"],
                max_age_in_seconds=1800,
            )
        ]
    )


def _lifecycle(args: StorageArgs, lifecycle: _Lifecycle) -> list[storage.ManagementPolicyRuleArgs]:
    after = storage.DateAfterModificationArgs(
        days_after_modification_greater_than=lifecycle.old_days
    )
    delete = storage.ManagementPolicyBaseBlobArgs(delete=after)
    cool = storage.ManagementPolicyBaseBlobArgs(tier_to_cool=after)
    rules: list[storage.ManagementPolicyRuleArgs] = []
    if args.purpose == "workspace":
        rules.append(_rule("oldRuns", prefixes=[_AZURE_ML_RUNS], base_blob=cool))
    if args.containers:
        temporary = [f"{container}/{TEMPORARY}" for container in args.containers]
        rules.append(_rule("temporary", prefixes=temporary, base_blob=delete, appended=True))
    if RUNS_CONTAINER in args.containers:
        checkpoints = [f"{RUNS_CONTAINER}/{CHECKPOINTS}"]
        rules.append(_rule("oldCheckpoints", prefixes=checkpoints, base_blob=cool))
    if lifecycle.is_versioned:
        # Counted from when a version was written, not from when another took its place; soft
        # delete keeps what this deletes for its own days.
        version = storage.ManagementPolicyVersionArgs(
            delete=storage.DateAfterCreationArgs(
                days_after_creation_greater_than=lifecycle.old_days
            )
        )
        rules.append(_rule("oldVersions", version=version, appended=True))
    return rules


def _rule(
    name: str,
    *,
    prefixes: list[str] | None = None,
    base_blob: storage.ManagementPolicyBaseBlobArgs | None = None,
    version: storage.ManagementPolicyVersionArgs | None = None,
    appended: bool = False,
) -> storage.ManagementPolicyRuleArgs:
    """Build a lifecycle rule; append blobs take deletions only."""
    return storage.ManagementPolicyRuleArgs(
        name=name,
        enabled=True,
        type="Lifecycle",
        definition=storage.ManagementPolicyDefinitionArgs(
            actions=storage.ManagementPolicyActionArgs(base_blob=base_blob, version=version),
            filters=storage.ManagementPolicyFilterArgs(
                blob_types=["blockBlob", "appendBlob"] if appended else ["blockBlob"],
                prefix_match=prefixes,
            ),
        ),
    )
