"""Converts a network's and its optimizer's state to checkpoint files and back; digests weights.

model.safetensors       the network's state_dict; buffers as rank 0 has them
optimizer.safetensors   tensors by `<parameter name>/<state name>`
ranks.safetensors       by `<rank>/rng`, `<rank>/cuda_rng`, `<rank>/buffers`
state.json              what is no tensor: counts of the optimizer, AMP scaler
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from trainer.common.errors import TrainingError
from trainer.common.whole_file import write_whole

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A copy of the whole state in the CPU's memory; training may go on beside it."""

    model: Tensors
    optimizer: Tensors
    ranks: Tensors
    others: dict[str, Any] = field(default_factory=dict[str, Any])
    weights: frozenset[str] = frozenset()

    def files(self) -> dict[str, bytes]:
        """Give the checkpoint's files; raises TrainingError where a weight is not finite.

        A loss may still have been finite when its gradients were not: to keep what came of them
        would in the end replace every checkpoint that one could go on from.
        """
        for name in sorted(self.weights):
            if not bool(torch.isfinite(self.model[name]).all()):
                message = f"training has diverged: weights of {name} are not finite"
                raise TrainingError(message)
        return {
            "model.safetensors": save(self.model),
            "optimizer.safetensors": save(self.optimizer),
            "ranks.safetensors": save(self.ranks),
            "state.json": json.dumps(self.others, indent=2).encode(),
        }


def require_state(network: nn.Module) -> None:
    """Raise TrainingError for the first part of a network's state that no checkpoint holds, by its name.

    Also for buffers that are not kept: they are averaged over ranks, as others are.
    """
    tried: set[torch.dtype] = set()
    for name, value in {**network.state_dict(), **dict(network.named_buffers())}.items():
        if not isinstance(value, Tensor):
            what, hint = f"a {type(value).__name__}", "get_extra_state() that gives a tensor"
        elif is_lazy(value):
            what = "a tensor without a size"
            hint = "give the layer its sizes, or call the network on an input in build()"
        elif value.layout != torch.strided:
            what = "a sparse tensor"
            hint = "keep its indices and values, and make it of them in forward()"
        elif value.dtype not in tried and not _is_kept(value.dtype):
            what, hint = f"a tensor of {value.dtype}", "torch.float32, or torch.complex64"
        else:
            tried.add(value.dtype)
            continue
        message = f"`{name}` of the network is {what}, which no checkpoint holds"
        raise TrainingError(message, hint=hint)


def read_files(files: Mapping[str, bytes]) -> Snapshot:
    """Give the snapshot that the files were made of; raises KeyError or ValueError for others."""
    try:
        return Snapshot(
            model=load(files["model.safetensors"]),
            optimizer=load(files["optimizer.safetensors"]),
            ranks=load(files["ranks.safetensors"]),
            others=json.loads(files["state.json"]),
        )
    except SafetensorError as error:
        message = f"no tensors: {error}"
        raise ValueError(message) from None


def take_snapshot(
    network: nn.Module,
    optimizer: Optimizer,
    *,
    ranks: Tensors,
    scaler: torch.amp.GradScaler | None = None,
) -> Snapshot:
    """Copy the state; `ranks` holds what the ranks differ in."""
    tensors: Tensors = {}
    values: dict[str, dict[str, Any]] = {}
    names = parameter_names(network, optimizer)
    state = optimizer.state_dict()
    for index, entries in state["state"].items():
        for key, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{names[index]}/{key}"] = _copy(value)
            else:
                values.setdefault(names[index], {})[key] = value
    return Snapshot(
        model={name: _copy(value) for name, value in network.state_dict().items()},
        optimizer=tensors,
        ranks=ranks,
        others={
            "optimizer": values,
            "scaler": None if scaler is None else scaler.state_dict(),
        },
        weights=frozenset(name for name, _ in network.named_parameters()),
    )


def restore_snapshot(
    snapshot: Snapshot,
    network: nn.Module,
    optimizer: Optimizer,
    *,
    scaler: torch.amp.GradScaler | None = None,
) -> None:
    """Put the state back, in place; raises TrainingError where it is another network's."""
    try:
        network.load_state_dict(as_state_of(network, snapshot.model))
    except RuntimeError as error:
        message = f"the checkpoint is of another network: {str(error).splitlines()[-1].strip()}"
        raise TrainingError(message, hint="another --checkpoint-dir") from None
    names = parameter_names(network, optimizer)
    parameters = dict(network.named_parameters())
    state = optimizer.state_dict()
    state["state"] = {
        index: {
            **snapshot.others["optimizer"].get(name, {}),
            **_state_of(name, snapshot.optimizer, parameters[name]),
        }
        for index, name in enumerate(names)
    }
    state["state"] = {index: entries for index, entries in state["state"].items() if entries}
    optimizer.load_state_dict(state)
    if scaler is not None and snapshot.others["scaler"] is not None:
        scaler.load_state_dict(snapshot.others["scaler"])


def as_state_of(network: nn.Module, tensors: Mapping[str, Tensor]) -> OrderedDict[str, Tensor]:
    """Give a file's tensors as a state of this network's version: torchvision's MNASNet wants to be told."""
    state = OrderedDict(tensors)
    versions = getattr(network.state_dict(), "_metadata", None)
    if versions is not None:
        state._metadata = versions  # noqa: SLF001 - where PyTorch keeps them
    return state


def parameter_names(network: nn.Module, optimizer: Optimizer) -> list[str]:
    """List the optimizer's parameters by name, in the order of its state_dict."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    return [names[id(each)] for group in optimizer.param_groups for each in group["params"]]


def rank_state(network: nn.Module, device: torch.device) -> dict[str, Tensor]:
    """Copy what this rank has of its own: generators, and buffers such as batch statistics."""
    own = {"rng": torch.get_rng_state()}
    if device.type == "cuda":
        own["cuda_rng"] = torch.cuda.get_rng_state(device)
    buffers = [each.detach().flatten() for each in float_buffers(network)]
    own["buffers"] = torch.cat(buffers) if buffers else torch.empty(0)
    return own


def restore_rank_state(own: Mapping[str, Tensor], network: nn.Module, device: torch.device) -> None:
    """Put this rank's generators and buffers back."""
    torch.set_rng_state(own["rng"])
    if device.type == "cuda" and "cuda_rng" in own:
        torch.cuda.set_rng_state(own["cuda_rng"], device)
    write_buffers(network, own["buffers"])


def float_buffers(network: nn.Module) -> Sequence[Tensor]:
    """Give the buffers that ranks may differ in."""
    return [each for each in network.buffers() if each.is_floating_point()]


def write_buffers(network: nn.Module, values: Tensor) -> None:
    """Fill the floating-point buffers from one flat tensor."""
    start = 0
    for buffer in float_buffers(network):
        buffer.copy_(values[start : start + buffer.numel()].view_as(buffer))
        start += buffer.numel()


def weights_digest(network: nn.Module) -> bytes:
    """Hash names and values (buffers too) by SHA-256, in the order of names."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        # By bytes: NumPy has no bf16.
        digest.update(value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.digest()


def save_weights(network: nn.Module, path: Path) -> None:
    """Write the weights as safetensors, whole or not at all."""
    write_whole(path, save({name: _copy(value) for name, value in network.state_dict().items()}))


def load_weights(path: Path) -> Tensors:
    """Read weights from a safetensors file, or from a .pt or .pth file without its pickles.

    Raises TrainingError where there is none or it holds more than tensors.
    """
    try:
        if path.suffix == ".safetensors":
            return load(path.read_bytes())
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(found, dict) or not all(map(torch.is_tensor, found.values())):
            raise ValueError
        if not all(isinstance(name, str) for name in found):
            raise ValueError
        return cast("Tensors", found)
    except (OSError, SafetensorError) as error:
        why = str(error).splitlines()[0]
    except (RuntimeError, ValueError, KeyError, EOFError, UnpicklingError):
        # Not torch's own words: they advise to load the file as a pickle, which runs what is in it.
        why = "it is no file of tensors and nothing else"
    message = f"no weights can be read from `{path}`: {why}"
    raise TrainingError(message, hint="a .safetensors file, or a state_dict of torch.save")


def _is_kept(dtype: torch.dtype) -> bool:
    """Tell whether a file of safetensors takes this type of numbers."""
    try:
        save({"one": torch.empty(1, dtype=dtype)})
    except (KeyError, RuntimeError):
        return False
    return True


def _copy(value: Tensor) -> Tensor:
    return value.detach().to("cpu", copy=True).contiguous()


def _state_of(name: str, tensors: Tensors, parameter: Tensor) -> Tensors:
    prefix = f"{name}/"
    found = {
        key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)
    }
    return {key: _like(parameter, value) for key, value in found.items()}


def _like(parameter: Tensor, value: Tensor) -> Tensor:
    """Convert the value to the parameter's memory format, where fused optimizers are fast."""
    if value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)
