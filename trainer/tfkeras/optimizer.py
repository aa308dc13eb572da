"""Lets a Keras optimizer average its gradients over all ranks before it applies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer.tf.strategy import Strategy


def average_gradients(optimizer: keras.optimizers.Optimizer, strategy: Strategy) -> None:
    """Average over ranks from now on; outside a loss scale, so that all ranks skip a step or none.

    The optimizer's class becomes one that is derived from its own: what Keras asks of an optimizer
    and its variables stays as it is. Horovod's own wrapper is for Keras 2.
    """
    kind = type(optimizer)

    def apply(
        self: Any, grads: Sequence[tf.Tensor], trainable_variables: Sequence[Any] | None = None
    ) -> None:
        kind.apply(self, strategy.average(grads), trainable_variables)

    optimizer.__class__ = type(f"Averaging{kind.__name__}", (kind,), {"apply": apply})
