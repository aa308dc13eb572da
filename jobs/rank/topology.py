"""Writes the PCI topology of Azure's GPU nodes with InfiniBand, as NCCL reads it.

A virtual machine hides which GPU and which InfiniBand card share a PCI switch; without the file NCCL
pairs them by chance. The facts (PCI addresses, links, cores) are those of `topology/` in Azure/azhpc-images
at 8e9d055f, which Azure's own images for these sizes install; the format is that of NCCL_TOPO_FILE:
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-topo-file
Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

TOPOLOGY_VARIABLE = "NCCL_TOPO_FILE"
_GPU, _INFINIBAND, _SWITCH = "0x030200", "0x020700", "0x060400"  # classes of PCI devices


class Numa(NamedTuple):
    """A NUMA node: its cores as a mask, and its PCI switches with the domains of their devices.

    GPUs have domains below 0x100, InfiniBand cards from there on. Without a switch the devices are the
    processor's own.
    """

    cores: str
    switches: Sequence[Sequence[int]]
    has_switches: bool = True


class Machine(NamedTuple):
    """A series of VM sizes: its processor, its links and its NUMA nodes."""

    vendor: str
    family: int
    model: int
    speed: str
    numas: Sequence[Numa]
    switch_ids: str = ""


_NO_IDS = "".join(
    f' {name}="0x0000"' for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")
)
_MACHINES = {
    "ndv2": Machine(
        *("GenuineIntel", 6, 85, "16 GT/s"),
        [
            Numa("00000000,000fffff", [[1, 2, 3, 4, 0x101]], has_switches=False),
            Numa("000000ff,fff00000", [[5, 6, 7, 8]], has_switches=False),
        ],
    ),
    "ndv4": Machine(
        *("AuthenticAMD", 23, 49, "16 GT/s"),
        [
            Numa("00000000,00000000,00ffffff", [[3, 0x103, 4, 0x104]]),
            Numa("00000000,0000ffff,ff000000", [[1, 0x101, 2, 0x102]]),
            Numa("000000ff,ffff0000,00000000", [[0xD, 0x107, 0xE, 0x108]]),
            Numa("ffffff00,00000000,00000000", [[0xB, 0x105, 0xC, 0x106]]),
        ],
    ),
    "ndv5": Machine(
        *("GenuineIntel", 6, 143, "32.0 GT/s PCIe"),
        [
            Numa(
                "00000000,0000ffff,ffffffff",
                [[1, 0x101], [2, 0x102], [3, 0x103], [8, 0x104]],
            ),
            Numa(
                "ffffffff,ffff0000,00000000",
                [[9, 0x105], [0xA, 0x106], [0xB, 0x107], [0xC, 0x108]],
            ),
        ],
        switch_ids=_NO_IDS,
    ),
}


def lay_topology(series: str, folder: str) -> str:
    """Write the topology of a series into the folder, and give its path; all ranks write the same."""
    path = f"{folder}/{series}-topology.xml"
    with open(f"{path}.{os.getpid()}", "w", encoding="ascii") as file:
        file.write(topology(series))
    os.replace(file.name, path)
    return path


def topology(series: str) -> str:
    """Give the topology of a series as XML (pure)."""
    machine = _MACHINES[series]
    lines = ['<system version="1">']
    switch = 0
    for number, numa in enumerate(machine.numas):
        lines.append(
            f'<cpu numaid="{number}" affinity="{numa.cores}" arch="x86_64" '
            f'vendor="{machine.vendor}" familyid="{machine.family}" modelid="{machine.model}">'
        )
        for domains in numa.switches:
            devices = [f"<{_device(domain, machine.speed)}/>" for domain in domains]
            if numa.has_switches:
                switch += 1
                place = _pci(f"ffff:ff:{switch:02x}.0", _SWITCH, machine.speed)
                devices = [f"<{place}{machine.switch_ids}>", *devices, "</pci>"]
            lines += devices
        lines.append("</cpu>")
    return "\n".join([*lines, "</system>", ""])


def _device(domain: int, speed: str) -> str:
    return _pci(f"{domain:04x}:00:00.0", _INFINIBAND if domain >= 0x100 else _GPU, speed)


def _pci(address: str, kind: str, speed: str) -> str:
    return f'pci busid="{address}" class="{kind}" link_speed="{speed}" link_width="16"'
