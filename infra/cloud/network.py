"""Declares the network of a private stack, a subnet of private endpoints and their DNS zones, or
uses those that are there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_azure_native import network, privatedns

from infra.cloud.context import Context
from infra.cloud.resource_options import replaced_with
from infra.cloud.zones import ZONES, EndpointGroup

if TYPE_CHECKING:
    from pulumi_azure_native.resources import ResourceGroup

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
    """The network, its one subnet, the zones; `connect` adds an endpoint.

    The settings may name a network, a subnet or zones that are there: nothing but endpoints, and a
    subnet where none is named, is added to them.
    """

    def __init__(
        self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cloud:Network", name, None, opts)
        context = args.context
        self._name = name
        self._context = context
        self._group = args.resource_group
        existing = context.settings.existing
        self.network_id = existing.network or context.names.id_of(
            "Microsoft.Network/virtualNetworks", context.names.network
        )
        own = None if existing.network else self._make_network()
        # What endpoints and zones are made after, and again with.
        self._base: pulumi.Resource = own or args.resource_group
        if existing.endpoints_subnet:
            self.subnet_id, self._subnet = existing.endpoints_subnet, self._base
        else:
            subnet_name = context.names.shared_subnet if existing.network else _SUBNET
            self.subnet_id = f"{self.network_id}/subnets/{subnet_name}"
            self._subnet = self._make_subnet(subnet_name)
        self._zones = {
            zone: existing.zone_id(zone) or self._make_zone(zone)
            for zones in ZONES.values()
            for zone in zones
        }
        self.register_outputs({"subnet_id": self.subnet_id})

    def _make_network(self) -> network.VirtualNetwork:
        context = self._context
        addresses = context.settings.addresses.network
        assert addresses, "the settings fill in the addresses of a network that the stack makes"
        return network.VirtualNetwork(
            f"{self._name}-vnet",
            virtual_network_name=context.names.network,
            resource_group_name=context.names.resource_group,
            location=context.settings.location,
            address_space=network.AddressSpaceArgs(address_prefixes=[addresses]),
            tags=context.tags,
            opts=replaced_with(self, self._group),
        )

    def _make_subnet(self, subnet_name: str) -> network.Subnet:
        """Declare the subnet and its rules; in a network of another group where that is named."""
        context = self._context
        firewall_name = f"{context.names.network}-{_SUBNET}"
        firewall = network.NetworkSecurityGroup(
            f"{self._name}-firewall",
            network_security_group_name=firewall_name,
            resource_group_name=context.names.resource_group,
            location=context.settings.location,
            security_rules=_rules(),
            tags=context.tags,
            opts=replaced_with(self, self._group),
        )
        subscription, group, network_name = _parts(self.network_id)
        if subscription != context.names.subscription_id:
            message = (
                f"existing.network is in subscription {subscription}, where this stack can make no "
                "subnet\n  hint: have one made there and name it in existing.endpoints_subnet"
            )
            raise pulumi.RunError(message)
        return network.Subnet(
            f"{self._name}-{_SUBNET}",
            subnet_name=subnet_name,
            virtual_network_name=network_name,
            resource_group_name=group,
            address_prefix=context.settings.addresses.endpoints,
            default_outbound_access=False,
            network_security_group=network.NetworkSecurityGroupArgs(
                id=context.names.id_of("Microsoft.Network/networkSecurityGroups", firewall_name)
            ),
            # Off, Azure's default, the rules above would not hold for private endpoints.
            private_endpoint_network_policies="NetworkSecurityGroupEnabled",
            opts=replaced_with(self, self._base, firewall),
        )

    def has_zones(self, group_id: EndpointGroup) -> bool:
        """Tell whether the stack makes the zones of these endpoints itself."""
        return not any(isinstance(self._zones[zone], str) for zone in ZONES[group_id])

    def connect(
        self,
        name: str,
        target_id: str,
        group_id: EndpointGroup,
        depends_on: Sequence[pulumi.Resource],
    ) -> Connection:
        """Give a resource an address in the subnet and make its public names lead there."""
        context = self._context
        endpoint_name = f"pe-{target_id.rpartition('/')[2]}-{group_id}"
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
            opts=replaced_with(self, self._subnet, *depends_on),
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
                for zone in ZONES[group_id]
            ],
            opts=replaced_with(
                self,
                endpoint,
                *(
                    made
                    for zone in ZONES[group_id]
                    if not isinstance(made := self._zones[zone], str)
                ),
            ),
        )
        return Connection(
            endpoint=endpoint,
            endpoint_id=context.names.id_of("Microsoft.Network/privateEndpoints", endpoint_name),
            names=names,
        )

    def _make_zone(self, zone: str) -> privatedns.PrivateZone:
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
            # Names of other tenants' endpoints, which no zone of ours has, lead to the public ones.
            resolution_policy=privatedns.ResolutionPolicy.NX_DOMAIN_REDIRECT,
            virtual_network=privatedns.SubResourceArgs(id=self.network_id),
            tags=self._context.tags,
            opts=replaced_with(self, made, self._base),
        )
        return made

    def _zone_id(self, zone: str) -> str:
        known = self._zones[zone]
        if isinstance(known, str):
            return known
        return self._context.names.id_of("Microsoft.Network/privateDnsZones", zone)


def _parts(network_id: str) -> tuple[str, str, str]:
    """Cut subscription, resource group and name out of a network's id."""
    words = network_id.split("/")
    return words[2].lower(), words[4], words[8]


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
