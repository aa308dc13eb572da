"""What scripts that Horovod was made for still lack on the last Keras 2."""

from __future__ import annotations

import warnings
from typing import Any

import horovod._keras as impl
import keras
import tensorflow as tf
from horovod._keras import callbacks


def mend_momentum() -> None:
    """Let the rate of an optimizer be scheduled whose momentum is a number: it cannot be corrected."""
    schedule = callbacks.LearningRateScheduleCallbackImpl
    stock = schedule._adjust_learning_rate

    def adjust_learning_rate(self: Any, epoch: float) -> None:
        momentum = getattr(self.model.optimizer, "momentum", None)
        if self.momentum_correction and isinstance(momentum, (int, float)):
            self.momentum_correction = False
            if momentum:
                message = (
                    "the momentum is not corrected for the changing learning rate: this optimizer"
                    " fixes it, tf.keras.optimizers.legacy.SGD does not"
                )
                warnings.warn(message, stacklevel=2)
        stock(self, epoch)

    schedule._adjust_learning_rate = adjust_learning_rate


def mend_load_model() -> None:
    """Let `load_model` wrap the optimizer of Keras's newer file format, too, with all its state."""
    stock = impl.load_model

    def load_model(keras: Any, wrap_optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        model = stock(keras, wrap_optimizer, *args, **kwargs)
        optimizer = getattr(model, "optimizer", None)
        if isinstance(optimizer, keras.optimizers.Optimizer) and not is_distributed(optimizer):
            made = wrap_optimizer(type(optimizer))(**optimizer.get_config())
            made.build(model.trainable_variables)
            for ours, theirs in zip(made.variables, optimizer.variables, strict=True):
                ours.assign(theirs)
            model.optimizer = made
        return model

    impl.load_model = load_model


def is_distributed(optimizer: Any) -> bool:
    return hasattr(optimizer, "_allreduce_grads")


def add_names_of_tensorflow_1() -> None:
    """Give the three names that choose a GPU in TensorFlow 1; the training itself stays eager."""
    for name in ("ConfigProto", "Session"):
        if not hasattr(tf, name):
            setattr(tf, name, getattr(tf.compat.v1, name))
    if not hasattr(keras.backend, "set_session"):
        keras.backend.set_session = tf.compat.v1.keras.backend.set_session
