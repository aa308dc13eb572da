"""The network of a private stack, every input, and the order in which Azure takes endpoints."""

from __future__ import annotations

import pytest

from infra.cloud.network import Network, NetworkArgs
from tests.infra.cloud_parts.conftest import interfaces_of

SUBNETS = {"test": "10.82.0.0", "prod": "10.83.0.0"}
ZONES = {
    "blob": "privatelink.blob.core.windows.net",
    "file": "privatelink.file.core.windows.net",
    "vaultcore": "privatelink.vaultcore.azure.net",
    "azurecr": "privatelink.azurecr.io",
    "api": "privatelink.api.azureml.ms",
    "notebooks": "privatelink.notebooks.azure.net",
}


def rule(name, priority, access, protocol, address, port) -> dict[str, object]:
    return {
        "name": name,
        "priority": priority,
        "direction": "Inbound",
        "access": access,
        "protocol": protocol,
        "sourceAddressPrefix": address,
        "sourcePortRange": "*",
        "destinationAddressPrefix": address,
        "destinationPortRange": port,
    }


def made_network(context, group, opts) -> Network:
    return Network("net", NetworkArgs(context=context, resource_group=group), opts)


@pytest.mark.parametrize("stage", ["test", "prod"])
def test_the_network_holds_endpoints_behind_rules_and_the_zones_of_their_names(record, stage):
    recorded = record(stage, made_network)
    group = {"resourceGroupName": f"rg-acme-{stage}"}
    ids = (
        "/subscriptions/00000000-0000-0000-0000-000000000001"
        f"/resourceGroups/rg-acme-{stage}/providers/Microsoft.Network"
    )
    tags = {
        "tags": {
            "project": "trainyard",
            "stack": stage,
            "stage": stage,
            "owner": "platform@example.com",
        }
    }
    zones = {
        f"net-zone-{short}": {**group, **tags, "location": "Global", "privateZoneName": zone}
        for short, zone in ZONES.items()
    }
    links = {
        f"net-zone-{short}-link": {
            **group,
            **tags,
            "location": "Global",
            "privateZoneName": zone,
            "virtualNetworkLinkName": f"vnet-acme-{stage}",
            "registrationEnabled": False,
            "resolutionPolicy": "NxDomainRedirect",
            "virtualNetwork": {"id": f"{ids}/virtualNetworks/vnet-acme-{stage}"},
        }
        for short, zone in ZONES.items()
    }

    assert recorded.inputs() == {
        "net-vnet": {
            **group,
            **tags,
            "virtualNetworkName": f"vnet-acme-{stage}",
            "location": "westeurope",
            "addressSpace": {"addressPrefixes": [f"{SUBNETS[stage]}/24"]},
            # The SDK's own defaults, and Azure's.
            "enableDdosProtection": False,
            "enableVmProtection": False,
        },
        "net-firewall": {
            **group,
            **tags,
            "networkSecurityGroupName": f"vnet-acme-{stage}-endpoints",
            "location": "westeurope",
            "securityRules": [
                rule("https-from-network", 100, "Allow", "Tcp", "VirtualNetwork", "443"),
                rule("nothing-else", 4096, "Deny", "*", "*", "*"),
            ],
        },
        "net-endpoints": {
            **group,
            "subnetName": "endpoints",
            "virtualNetworkName": f"vnet-acme-{stage}",
            "addressPrefix": f"{SUBNETS[stage]}/25",
            "defaultOutboundAccess": False,
            "networkSecurityGroup": {
                "id": f"{ids}/networkSecurityGroups/vnet-acme-{stage}-endpoints"
            },
            "privateEndpointNetworkPolicies": "NetworkSecurityGroupEnabled",
            "privateLinkServiceNetworkPolicies": "Enabled",
        },
        **zones,
        **links,
    }


def test_an_endpoint_leads_the_public_names_of_its_target_to_an_address_in_the_subnet(record):
    made = []

    def connected(context, group, opts):
        network = made_network(context, group, opts)
        target = context.names.id_of("Microsoft.MachineLearningServices/workspaces", "mlw")
        made.append(network.connect("workspace", target, "amlworkspace", [group]))

    recorded = record("test", connected)
    ids = (
        "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg-acme-test/providers"
    )

    assert recorded.seen["net-workspace"].inputs == {
        "privateEndpointName": "pe-mlw-amlworkspace",
        "resourceGroupName": "rg-acme-test",
        "location": "westeurope",
        "subnet": {
            "id": f"{ids}/Microsoft.Network/virtualNetworks/vnet-acme-test/subnets/endpoints"
        },
        "customNetworkInterfaceName": "pe-mlw-amlworkspace-nic",
        "privateLinkServiceConnections": [
            {
                "name": "pe-mlw-amlworkspace",
                "groupIds": ["amlworkspace"],
                "privateLinkServiceId": f"{ids}/Microsoft.MachineLearningServices/workspaces/mlw",
            }
        ],
        "tags": {
            "project": "trainyard",
            "stack": "test",
            "stage": "test",
            "owner": "platform@example.com",
        },
    }
    assert recorded.seen["net-workspace-names"].inputs == {
        "privateDnsZoneGroupName": "default",
        "privateEndpointName": "pe-mlw-amlworkspace",
        "resourceGroupName": "rg-acme-test",
        "privateDnsZoneConfigs": [
            {
                "name": "privatelink-api-azureml-ms",
                "privateDnsZoneId": (
                    f"{ids}/Microsoft.Network/privateDnsZones/privatelink.api.azureml.ms"
                ),
            },
            {
                "name": "privatelink-notebooks-azure-net",
                "privateDnsZoneId": (
                    f"{ids}/Microsoft.Network/privateDnsZones/privatelink.notebooks.azure.net"
                ),
            },
        ],
    }
    assert made[0].endpoint_id == f"{ids}/Microsoft.Network/privateEndpoints/pe-mlw-amlworkspace"


def test_endpoints_of_one_account_are_made_one_after_the_other(record):
    def connected(context, group, opts):
        interfaces = interfaces_of(group, network=made_network(context, group, opts))
        for account in ("stdata", "stml"):
            target = context.names.id_of("Microsoft.Storage/storageAccounts", account)
            endpoints = {f"{account}-blob": "blob", f"{account}-file": "file"}
            interfaces.connect(target, endpoints, after=[group])

    recorded = record("prod", connected)

    assert {
        name: recorded.waits_for(f"net-{name}")
        for name in ("stdata-blob", "stdata-file", "stml-blob", "stml-file")
    } == {
        "stdata-blob": ["group", "net-endpoints"],
        "stdata-file": ["group", "net-endpoints", "net-stdata-blob-names"],
        "stml-blob": ["group", "net-endpoints"],
        "stml-file": ["group", "net-endpoints", "net-stml-blob-names"],
    }
