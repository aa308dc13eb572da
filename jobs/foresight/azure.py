"""Figures of Azure that forecasts assume, each with its source."""

from __future__ import annotations

# Standard account, the lower of the limits of regions: egress and requests a second.
# https://learn.microsoft.com/azure/storage/common/scalability-targets-standard-account
STORE_BYTES_PER_S = 50e9 / 8
STORE_REQUESTS_PER_S = 20_000.0

# Assumed, as nobody publishes it of low-priority nodes. Spot VMs, which share their fate, are listed
# with up to 5, 10, 15, 20 % an hour or more; this is the top of the first range.
# https://learn.microsoft.com/azure/virtual-machines/spot-vms
EVICTIONS_PER_NODE_HOUR = 0.05

# Expected network bandwidth of VM sizes, Mb/s: the sizes' pages of Azure's documentation, read
# 2026-11. NCv3's pages print none; 24 Gb/s is what they had before.
_LINE_MBPS = {
    "Standard_ND96isr_H200_v5": 80_000,
    "Standard_ND96isr_H100_v5": 80_000,
    "Standard_ND96isr_MI300X_v5": 80_000,
    "Standard_ND96amsr_A100_v4": 24_000,
    "Standard_ND96asr_v4": 24_000,
    "Standard_ND40rs_v2": 24_000,
    "Standard_NC40ads_H100_v5": 40_000,
    "Standard_NC80adis_H100_v5": 80_000,
    "Standard_NC24ads_A100_v4": 20_000,
    "Standard_NC48ads_A100_v4": 40_000,
    "Standard_NC96ads_A100_v4": 80_000,
    "Standard_NC4as_T4_v3": 8_000,
    "Standard_NC8as_T4_v3": 8_000,
    "Standard_NC16as_T4_v3": 8_000,
    "Standard_NC64as_T4_v3": 32_000,
    "Standard_NC6s_v3": 24_000,
    "Standard_NC12s_v3": 24_000,
    "Standard_NC24s_v3": 24_000,
    "Standard_NC24rs_v3": 24_000,
}
_BY_NAME = {name.lower(): mbps for name, mbps in _LINE_MBPS.items()}


def line_bytes_per_s(size: str) -> float | None:
    """Give the bandwidth of a VM size; None where it is not known."""
    mbps = _BY_NAME.get(size.lower())
    return None if mbps is None else mbps * 1e6 / 8
