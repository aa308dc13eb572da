"""Makes the optimizer of the TensorFlow and Keras programs: torch's SGD, with a loss scale for fp16."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from trainer.common.training_options import PrecisionName

POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16", "fp16": "mixed_float16"}


class Sgd(keras.optimizers.Optimizer):
    """SGD with momentum as torch has it, in one kernel a variable.

    Weight decay is added to the gradient, and the rate is no part of the momentum; Keras's own SGD
    does both otherwise. Batch norms and biases do not decay.
    """

    def __init__(
        self, learning_rate: float, *, momentum: float, weight_decay: float, name: str = "sgd"
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name)
        self._momentum = momentum
        self._decay = weight_decay

    def build(self, variables: list[Any]) -> None:
        """Make a momentum of zeros for each variable."""
        if self.built:
            return
        super().build(variables)
        self._slots = [
            self.add_variable_from_reference(variable, "momentum") for variable in variables
        ]

    def update_step(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Take one step with one variable."""
        if self._decay and len(variable.shape) > 1:
            gradient += self._decay * variable
        slot = self._slots[self._get_variable_index(variable)]
        tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=slot.value.handle,
            lr=tf.cast(learning_rate, gradient.dtype),
            grad=gradient,
            momentum=tf.cast(self._momentum, gradient.dtype),
        )


def set_precision(precision: PrecisionName) -> None:
    """Set the precision of networks made from now on; their weights stay fp32."""
    keras.mixed_precision.set_global_policy(POLICIES[precision])


def make_optimizer(
    network: keras.Model, *, precision: PrecisionName, momentum: float, weight_decay: float
) -> keras.optimizers.Optimizer:
    """Make the optimizer with all its variables; the rate is set step by step."""
    optimizer = Sgd(0.0, momentum=momentum, weight_decay=weight_decay)
    if precision == "fp16":  # bf16 has fp32's range
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale")
    optimizer.build(network.trainable_variables)
    return optimizer
