"""What is lost with a resource of each kind, in the words of `launch env check` (pure)."""

from __future__ import annotations

# By module and kind of Pulumi's type. Gone in either case, a new one begins empty.
_HELD = {
    "resources:ResourceGroup": (
        "all that is in the group, what this stack does not know of too; the vault keeps its name, so "
        "a new group needs another `trainyard:generation` as well"
    ),
    "storage:StorageAccount": (
        "every blob in it, be it dataset, checkpoint, log or output; how many is not looked at"
    ),
    "storage:BlobContainer": (
        "every blob in it, be it dataset, checkpoint, log or output; how many is not looked at"
    ),
    "keyvault:Vault": "every secret in it; a deleted vault can be recovered until its retention ends",
    "containerregistry:Registry": (
        "every image in it; no job that names one starts until it is pushed again"
    ),
    "machinelearningservices:Workspace": (
        "job history, metrics, registered data assets and models; running jobs end"
    ),
    "machinelearningservices:Compute": "running jobs end; their checkpoints stay in the store",
    "operationalinsights:Workspace": "the logs in it",
    "applicationinsights:Component": "the telemetry that is found through it",
    # The local store's server.
    "dynamic:Azurite": "access to the store until another serves it; its data stays in its folder",
}
# There while the resource is: a replacement only interrupts it.
_GIVEN = {
    "managedidentity:UserAssignedIdentity": "the access of all that runs as it",
    "authorization:RoleAssignment": "the access that it gives",
    "authorization:RoleDefinition": "the access that is given by it",
    "authorization:ManagementLockByScope": "protection from deletion",
    "authorization:ManagementLockAtResourceLevel": "protection from deletion",
    "consumption:Budget": "warnings that money runs out",
    "monitor:DiagnosticSetting": "the record of what happens there",
    "storage:ManagementPolicy": "deletion of temporary files and old checkpoints",
    "storage:BlobServiceProperties": "recovery of blobs that are deleted",
    "storage:FileServiceProperties": "recovery of shares that are deleted",
    "machinelearningservices:Datastore": "jobs' access by the datastore's name (the blobs stay)",
    "machinelearningservices:ManagedNetworkSettingsRule": "the clusters' connections through it",
    "network:VirtualNetwork": "the connections in it, private endpoints included",
    "network:Subnet": "the connections in it, private endpoints included",
    "network:NetworkSecurityGroup": "the rules for what may connect",
    "network:PrivateEndpoint": "the connections through it",
    "network:PrivateDnsZoneGroup": "the names of what is connected to",
    "privatedns:PrivateZone": "the names of what is connected to",
    "privatedns:VirtualNetworkLink": "the names of what is connected to",
}
_UNKNOWN = "what it holds; this check does not know its kind"


def what_is_lost(resource_type: str, *, is_replaced: bool) -> str:
    """What a resource takes with it when it is replaced or deleted."""
    rest, _, kind = resource_type.rpartition(":")
    # azure-native:storage, or of a pinned API version azure-native:storage/v20240101
    module = rest.rpartition(":")[2].partition("/")[0]
    key = f"{module}:{kind}"
    if key in _GIVEN:
        return f"{_GIVEN[key]}, until the new one works" if is_replaced else _GIVEN[key]
    return _HELD.get(key, _UNKNOWN)
