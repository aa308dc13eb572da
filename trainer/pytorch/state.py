"""A network's weights as bytes: their digest, and the file that they are kept in."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import nn


def weights_digest(network: nn.Module) -> bytes:
    """SHA-256 over names and values (buffers too), in the order of names."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.digest()


def save_weights(network: nn.Module, path: Path) -> None:
    """Write the weights whole or not at all; torch.load(path, weights_only=True) reads them."""
    partial = path.with_name(f".{path.name}.partial")
    torch.save({name: value.cpu() for name, value in network.state_dict().items()}, partial)
    partial.replace(path)
