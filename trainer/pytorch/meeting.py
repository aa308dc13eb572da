"""Finds the other ranks of DDP by a store, in which they agree on their devices before they talk."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import distributed

from trainer.common.accelerators import OF_NODE, VISIBLE, RankDevice, require_devices
from trainer.common.errors import TrainingError
from trainer.common.world import World

DEVICE_KEY, READ_KEY, START_KEY = "trainyard/device", "trainyard/read", "trainyard/start"
MEETING_TIMEOUT = timedelta(minutes=10)


def meet(world: World) -> distributed.Store:
    """Open the store through which the ranks find each other, where World says."""
    if world.url is None:
        if world.size > 1:
            message = "neither --dist-url nor MASTER_ADDR and MASTER_PORT say where ranks meet"
            raise TrainingError(message, hint="start it with `launch run` or torchrun")
        return distributed.HashStore()
    url = world.store or world.url
    if url.startswith("tcp:"):
        return _open_store(world, url)
    if world.url.startswith("file:") and not Path(urlsplit(world.url).path).parent.is_dir():
        message = f"rank {world.rank} cannot meet the others at {world.url}: no such folder"
        raise TrainingError(message, hint="a folder that all ranks share")
    found = distributed.rendezvous(
        world.url, rank=world.rank, world_size=world.size, timeout=MEETING_TIMEOUT
    )
    store: distributed.Store = next(found)[0]
    store.set_timeout(MEETING_TIMEOUT)  # file:// does not take the one above
    if world.url.startswith("file:") and store.add(f"{START_KEY}/{world.rank}", 1) > 1:
        message = f"rank {world.rank} cannot meet the others at {world.url}: an earlier run left it"
        raise TrainingError(message, hint="a file that is not there yet")
    return store


def agree_on_devices(
    store: distributed.Store, device: torch.device, world: World, *, backend: str
) -> None:
    """Raise TrainingError on every rank where their devices do not fit together (require_devices).

    Set, not counted: a store of torchrun has what the ranks of an earlier start have said, too.
    """
    own = RankDevice(
        gpu=name_of_gpu(device) if device.type == "cuda" else None,
        host=socket.gethostname(),
        local_size=world.local_size,
        environ={name: os.environ[name] for name in (VISIBLE, OF_NODE) if name in os.environ},
    )
    store.set(f"{DEVICE_KEY}/{world.rank}", json.dumps(asdict(own)))
    told = store.multi_get([f"{DEVICE_KEY}/{rank}" for rank in range(world.size)])
    try:
        require_devices([RankDevice(**json.loads(each)) for each in told], backend=backend)
    except TrainingError:
        store.set(f"{READ_KEY}/{world.rank}", "")
        if world.is_main:  # with it goes its store, which the others read
            store.wait([f"{READ_KEY}/{rank}" for rank in range(world.size)])
        raise


def name_of_gpu(device: torch.device) -> str:
    """Give the name that this GPU has and no other, on whichever machine."""
    return str(torch.cuda.get_device_properties(device).uuid)


def _open_store(world: World, url: str) -> distributed.Store:
    """Open the store at a tcp:// URL; rank 0 serves it at that address and at no other.

    torch itself would listen on every interface.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    listener: int | None = None
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if ip_address(address[4][0]).is_loopback:
            # Ranks that meet there are all on this machine; Gloo would ask the host's name.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        if world.is_main:
            listener = socket.create_server(address[4], family=address[0], backlog=1024).detach()
    except OSError as error:
        message = f"rank {world.rank} cannot meet the others at {url}: {error.strerror}"
        hint = "a free port at an address of the machine that rank 0 runs on"
        raise TrainingError(message, hint=hint) from None
    return distributed.TCPStore(
        host,
        port,
        world.size,
        is_master=world.is_main,
        timeout=MEETING_TIMEOUT,
        multi_tenant=True,
        master_listen_fd=listener,
    )
