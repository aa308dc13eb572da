"""Declares the virtual network of a private stack: a subnet of private endpoints and their DNS
zones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pulumi
from pulumi_azure_native import network, privatedns

from infra.cloud.context import Context
from infra.cloud.resource_options import replaced_with

if TYPE_CHECKING:
    from pulumi_azure_native.resources import ResourceGroup

    from infra.cloud.settings import Stage

EndpointGroup = Literal["blob", "dfs", "file", "vault", "registry", "amlworkspace"]

# https://learn.microsoft.com/azure/private-link/private-endpoint-dns, read 2026-11-21.
_ZONES: Mapping[EndpointGroup, tuple[str, ...]] = {
    "blob": ("privatelink.blob.core.windows.net",),
    "dfs": ("privatelink.dfs.core.windows.net",),
    "file": ("privatelink.file.core.windows.net",),
    "vault": ("privatelink.vaultcore.azure.net",),
    "registry": ("privatelink.azurecr.io",),
    "amlworkspace": ("privatelink.api.azureml.ms", "privatelink.notebooks.azure.net"),
}

# A stage each, so that one hub can be peered with all three. Endpoints take the lower half; the
# upper one is free for a gateway or for machines of people.
_ADDRESSES: Mapping[Stage, tuple[str, str]] = {
    "dev": ("10.81.0.0/24", "10.81.0.0/25"),
    "test": ("10.82.0.0/24", "10.82.0.0/25"),
    "prod": ("10.83.0.0/24", "10.83.0.0/25"),
}
_SUBNET = "endpoints"


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """The group that the network is made in."""

    context: Context
    resource_group: ResourceGroup


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A private endpoint and its DNS names; clients of the endpoint wait for `names`."""

    endpoint: network.PrivateEndpoint
    endpoint_id: str
    names: network.PrivateDnsZoneGroup


class Network(pulumi.ComponentResource):
    """The network, its one subnet, the zones; `connect` adds an endpoint."""

    def __init__(
        self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Network", name, None, opts)
        context = args.context
        self._name = name
        self._context = context
        self._group = args.resource_group
        self._last: dict[str, pulumi.Resource] = {}
        self.network_id = context.names.id_of(
            "Microsoft.Network/virtualNetworks", context.names.network
        )
        self.subnet_id = f"{self.network_id}/subnets/{_SUBNET}"
        addresses, endpoint_addresses = _ADDRESSES[context.settings.stage]
        self.network = network.VirtualNetwork(
            f"{name}-vnet",
            virtual_network_name=context.names.network,
            resource_group_name=context.names.resource_group,
            location=context.settings.location,
            address_space=network.AddressSpaceArgs(address_prefixes=[addresses]),
            tags=context.tags,
            opts=replaced_with(self, args.resource_group),
        )
        firewall_name = f"{context.names.network}-{_SUBNET}"
        firewall = network.NetworkSecurityGroup(
            f"{name}-firewall",
            network_security_group_name=firewall_name,
            resource_group_name=context.names.resource_group,
            location=context.settings.location,
            security_rules=_rules(),
            tags=context.tags,
            opts=replaced_with(self, args.resource_group),
        )
        self.subnet = network.Subnet(
            f"{name}-{_SUBNET}",
            subnet_name=_SUBNET,
            virtual_network_name=context.names.network,
            resource_group_name=context.names.resource_group,
            address_prefix=endpoint_addresses,
            default_outbound_access=False,
            network_security_group=network.NetworkSecurityGroupArgs(
                id=context.names.id_of("Microsoft.Network/networkSecurityGroups", firewall_name)
            ),
            # Off, Azure's default, the rules above would not hold for private endpoints.
            private_endpoint_network_policies="NetworkSecurityGroupEnabled",
            opts=replaced_with(self, self.network, firewall),
        )
        self._zones = {zone: self._zone(zone) for zones in _ZONES.values() for zone in zones}
        self.register_outputs({"subnet_id": self.subnet_id})

    def connect(
        self,
        name: str,
        target_id: str,
        group_id: EndpointGroup,
        depends_on: Sequence[pulumi.Resource],
    ) -> Connection:
        """Give a resource an address in the subnet and make its public names lead there.

        Endpoints of one resource are made one after the other: a storage account refuses the
        second with StorageAccountOperationInProgress while the first is being made.
        """
        context = self._context
        endpoint_name = f"pe-{target_id.rpartition('/')[2]}-{group_id}"
        before = [self._last[target_id]] if target_id in self._last else []
        endpoint = network.PrivateEndpoint(
            f"{self._name}-{name}",
            private_endpoint_name=endpoint_name,
            resource_group_name=context.names.resource_group,
            location=context.settings.location,
            # No SubnetArgs: its defaults would ask for policies of their own on the subnet.
            subnet={"id": self.subnet_id},
            custom_network_interface_name=f"{endpoint_name}-nic",
            private_link_service_connections=[
                network.PrivateLinkServiceConnectionArgs(
                    name=endpoint_name,
                    group_ids=[group_id],
                    private_link_service_id=target_id,
                )
            ],
            tags=context.tags,
            opts=replaced_with(self, self.subnet, *before, *depends_on),
        )
        names = network.PrivateDnsZoneGroup(
            f"{self._name}-{name}-names",
            private_dns_zone_group_name="default",
            private_endpoint_name=endpoint_name,
            resource_group_name=context.names.resource_group,
            private_dns_zone_configs=[
                network.PrivateDnsZoneConfigArgs(
                    name=zone.replace(".", "-"), private_dns_zone_id=self._zone_id(zone)
                )
                for zone in _ZONES[group_id]
            ],
            opts=replaced_with(self, endpoint, *(self._zones[zone] for zone in _ZONES[group_id])),
        )
        self._last[target_id] = names
        return Connection(
            endpoint=endpoint,
            endpoint_id=context.names.id_of("Microsoft.Network/privateEndpoints", endpoint_name),
            names=names,
        )

    def _zone(self, zone: str) -> privatedns.PrivateZone:
        """Declare a private DNS zone and link it to the network."""
        short = zone.removeprefix("privatelink.").partition(".")[0]
        made = privatedns.PrivateZone(
            f"{self._name}-zone-{short}",
            private_zone_name=zone,
            resource_group_name=self._context.names.resource_group,
            location="Global",
            tags=self._context.tags,
            opts=replaced_with(self, self._group),
        )
        privatedns.VirtualNetworkLink(
            f"{self._name}-zone-{short}-link",
            virtual_network_link_name=self._context.names.network,
            private_zone_name=zone,
            resource_group_name=self._context.names.resource_group,
            location="Global",
            registration_enabled=False,
            virtual_network=privatedns.SubResourceArgs(id=self.network_id),
            tags=self._context.tags,
            opts=replaced_with(self, made, self.network),
        )
        return made

    def _zone_id(self, zone: str) -> str:
        return self._context.names.id_of("Microsoft.Network/privateDnsZones", zone)


def _rules() -> list[network.SecurityRuleArgs]:
    """Allow https from the network and from peered networks, nothing else."""
    return [
        network.SecurityRuleArgs(
            name="https-from-network",
            priority=100,
            direction="Inbound",
            access="Allow",
            protocol="Tcp",
            source_address_prefix="VirtualNetwork",
            source_port_range="*",
            destination_address_prefix="VirtualNetwork",
            destination_port_range="443",
        ),
        network.SecurityRuleArgs(
            name="nothing-else",
            priority=4096,
            direction="Inbound",
            access="Deny",
            protocol="*",
            source_address_prefix="*",
            source_port_range="*",
            destination_address_prefix="*",
            destination_port_range="*",
        ),
    ]
