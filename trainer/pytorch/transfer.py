"""Copies tensors to the device of a rank, one batch ahead of the one that is computed on."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

T = TypeVar("T")


def pin(tensor: Tensor, device: torch.device) -> Tensor:
    """Give the tensor in memory from which a GPU copies while the host goes on."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy from this machine's memory to the device, without a wait for it."""
    return pin(tensor, device).to(device, non_blocking=True)


def each_tensor(made: T, change: Callable[[Tensor], Tensor]) -> T:
    """Change the tensors of a batch: in dataclasses, dictionaries, lists and tuples, however deep."""
    found: Any = made
    if isinstance(found, Tensor):
        return cast("T", change(found))
    if isinstance(found, Mapping):
        return cast("T", _each_of_mapping(found, change))
    if isinstance(found, PackedSequence):
        data, sizes, *orders = found
        # torch wants the sizes in the host's memory.
        return cast("T", PackedSequence(change(data), sizes, *each_tensor(orders, change)))
    if isinstance(found, (list, tuple)) and not _is_plain(found):
        changed = [each_tensor(each, change) for each in found]
        return type(found)(*changed) if hasattr(found, "_fields") else type(found)(changed)
    if is_dataclass(found) and not isinstance(found, type):
        values = {each.name: getattr(found, each.name) for each in fields(found)}
        new = {name: each_tensor(each, change) for name, each in values.items()}
        changed = {name: each for name, each in new.items() if each is not values[name]}
        return replace(found, **changed) if changed else found
    return made


def copied_ahead(batches: Iterable[T], device: torch.device) -> Iterator[T]:
    """Yield batches with their tensors on the device; the next one is copied meanwhile.

    On a GPU copies have a stream of their own: they wait for no kernel, and nothing but the batch's
    own kernels waits for them. Batches should be pinned (`pin`); what is on the device stays there.
    """
    if device.type != "cuda":
        for batch in batches:
            yield each_tensor(batch, lambda tensor: tensor.to(device))
        return
    copying = _copying(device)

    def begin(batch: T) -> tuple[T, torch.cuda.Event]:
        with torch.cuda.stream(copying):
            return place(batch, device), copying.record_event()

    def taken(batch: T, copied: torch.cuda.Event) -> T:
        computing = torch.cuda.current_stream(device)
        computing.wait_event(copied)
        # Its memory is of the copying stream: it may not be used again before the kernels are done.
        each_tensor(batch, lambda tensor: _used_by(tensor, computing))
        return batch

    begun: tuple[T, torch.cuda.Event] | None = None
    for batch in batches:
        before, begun = begun, begin(batch)
        if before is not None:
            yield taken(*before)
    if begun is not None:
        yield taken(*begun)


@functools.cache
def _copying(device: torch.device) -> torch.cuda.Stream:
    """Give the one stream of a device's copies: torch uses memory again on its own stream only."""
    return torch.cuda.Stream(device)


def place(batch: T, device: torch.device) -> T:
    """Copy a batch's tensors to the device, on the current stream."""
    return each_tensor(batch, lambda tensor: tensor.to(device, non_blocking=True))


def fetch(made: T, device: torch.device) -> T:
    """Give what was computed in memory; waits for the device once, whatever number of tensors it is."""
    if device.type != "cuda":
        return each_tensor(made, lambda tensor: tensor.to("cpu"))
    fetched = each_tensor(made, lambda tensor: tensor.to("cpu", non_blocking=True))
    torch.cuda.current_stream(device).synchronize()
    return fetched


def _each_of_mapping(
    found: Mapping[Any, Any], change: Callable[[Tensor], Tensor]
) -> Mapping[Any, Any]:
    """Change the values of a mapping, which stays of its kind, with what that keeps beside them."""
    values = {key: each_tensor(each, change) for key, each in found.items()}
    if not isinstance(found, MutableMapping):
        return type(found)(values)
    made = copy.copy(found)
    for key, value in values.items():
        made[key] = value
    return made


def _used_by(tensor: Tensor, stream: torch.cuda.Stream) -> Tensor:
    tensor.record_stream(stream)
    return tensor


def _is_plain(found: list[Any] | tuple[Any, ...]) -> bool:
    """Tell whether a list is of numbers or names, as a batch's samples are: it need not be looked at."""
    return all(isinstance(each, (int, float, str, bytes)) for each in found)
