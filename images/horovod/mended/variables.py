"""Lets Horovod's tape and broadcasts take the variables of Keras 3, which wrap those of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from horovod.tensorflow import functions


def mend() -> None:
    """Replace what asks a variable for more than Keras 3 gives."""
    keras.Variable.ref = lambda self: plain(self).ref()
    hvd.broadcast_variables = functions.broadcast_variables = broadcasting(
        functions.broadcast_variables
    )
    tape = hvd._DistributedGradientTape
    tape.gradient = of_plain_sources(tape.gradient)
    hvd._make_allreduce_grads_fn = grouping(hvd._make_allreduce_grads_fn)


def plain(variable: Any) -> Any:
    """Give TensorFlow's variable of one of Keras's; any other comes back as it is."""
    if not isinstance(variable, keras.Variable):
        return variable
    # `value` is a copy of another type inside an autocast scope, and that cannot be assigned to.
    return variable._value if isinstance(variable._value, tf.Variable) else variable.value


def broadcasting(stock: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stock)
    def broadcast_variables(variables: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        return stock([plain(each) for each in variables], *args, **kwargs)

    return broadcast_variables


def of_plain_sources(stock: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stock)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(sources, Sequence):
            sources = [plain(each) for each in sources]
        return stock(self, target, sources, *args, **kwargs)

    return gradient


def grouping(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Group gradients by variable: Horovod does it by name, and Keras 3 calls every kernel `kernel`."""

    @wraps(stock)
    def make(*args: Any, **kwargs: Any) -> Callable[..., Any]:
        *others, groups, process_set = (*args, *kwargs.values())
        if not isinstance(groups, list):
            return stock(*others, groups, process_set)
        together = stock(*others, 1, process_set)
        alone = stock(*others, None, process_set)
        group_of = {each.ref(): number for number, group in enumerate(groups) for each in group}

        def reduce(grads: Sequence[Any], variables: Sequence[Any], *_: Any) -> list[Any]:
            places: dict[int | None, list[int]] = {}
            for place, (grad, variable) in enumerate(zip(grads, variables, strict=True)):
                if grad is not None:
                    places.setdefault(group_of.get(variable.ref()), []).append(place)
            reduced = [None] * len(grads)
            for number, members in places.items():
                of_group = (
                    [grads[place] for place in members],
                    [variables[place] for place in members],
                )
                results = (alone if number is None else together)(*of_group)
                for place, result in zip(members, results, strict=True):
                    reduced[place] = result
            return reduced

        return reduce

    return make
