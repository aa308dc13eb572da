"""Builds ResNet-50 v1.5 for TensorFlow and Keras, equal to torchvision's, weights included.

Layers bear the names of torchvision's modules, by which trainer.tf.model_file names weights.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Mean and standard deviation of ImageNet's training pixels, as all pretrained networks want them.
PIXEL_MEAN, PIXEL_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Channels and blocks of the four stages.
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
EXPANSION = 4
HEAD = "fc"


class Normalise(keras.layers.Layer):
    """Turns bytes into the floats that pretrained networks want."""

    def call(self, images: tf.Tensor) -> tf.Tensor:
        """Normalise N x height x width x 3 bytes into the dtype of computation."""
        mean, std = (255.0 * np.array(each, np.float32) for each in (PIXEL_MEAN, PIXEL_STD))
        return tf.cast((tf.cast(images, tf.float32) - mean) / std, self.compute_dtype)


class FusedBatchNorm(keras.layers.Layer):
    """Batch norm in TensorFlow's one fused kernel, with torch's statistics.

    Keras 3's own layer is a dozen elementwise kernels, and its running variance is the biased one.
    """

    def __init__(
        self, *, momentum: float = 0.9, epsilon: float = 1e-5, begins_at: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._momentum = momentum
        self._epsilon = epsilon
        self._begins_at = begins_at

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Make scale and offset, and the running mean and variance, in fp32 at any precision."""

        def add(name: str, value: float, *, trainable: bool = True) -> Any:
            return self.add_weight(
                name=name,
                shape=(input_shape[-1],),
                initializer=keras.initializers.Constant(value),
                trainable=trainable,
                dtype="float32",
                autocast=False,
            )

        self.gamma = add("gamma", self._begins_at)
        self.beta = add("beta", 0.0)
        self.moving_mean = add("moving_mean", 0.0, trainable=False)
        self.moving_variance = add("moving_variance", 1.0, trainable=False)

    def call(self, inputs: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        """Normalise by the batch's statistics in training, else by the running ones."""
        running = (self.moving_mean, self.moving_variance)
        given = [tf.zeros([0])] * 2 if training else [each.value for each in running]
        result = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=self.gamma.value,
            offset=self.beta.value,
            mean=given[0],
            variance=given[1],
            epsilon=self._epsilon,
            is_training=training,
        )
        if training:
            for variable, seen in zip(running, (result[1], result[2]), strict=True):
                variable.value.assign_sub((1 - self._momentum) * (variable.value - seen))
        return result[0]

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Give the input's shape."""
        return input_shape


def build_resnet50(num_classes: int, image_size: int) -> keras.Model:
    """Make the network: N x size x size x 3 bytes to N x classes scores, in fp32.

    Source: He et al. 2015, arXiv 1512.03385 (with the stride in the 3x3 convolution); Goyal et al.
    2017, arXiv 1706.02677 (the last batch norm of a block starts at 0).
    """
    images = keras.Input((image_size, image_size, 3), dtype="uint8", name="images")
    x = Normalise(name="normalise")(images)
    x = convolve(x, 64, kernel=7, stride=2, name="conv1")
    x = keras.layers.ReLU(name="relu")(FusedBatchNorm(name="bn1")(x))
    # Zeros around pixels that are not negative: the same maximum as torch's minus infinity.
    x = keras.layers.ZeroPadding2D(1, name="maxpool.pad")(x)
    x = keras.layers.MaxPooling2D(3, 2, name="maxpool")(x)
    for stage, (channels, num_blocks) in enumerate(STAGES, 1):
        for block in range(num_blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            x = bottleneck(x, channels, stride=stride, name=f"layer{stage}.{block}")
    x = keras.layers.GlobalAveragePooling2D(name="avgpool")(x)
    # As torch's linear layer begins: uniform, with a variance of a third of its inputs' inverse.
    first = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    scores = keras.layers.Dense(num_classes, kernel_initializer=first, dtype="float32", name=HEAD)(
        x
    )
    return keras.Model(images, scores, name="resnet50")


def bottleneck(x: Any, channels: int, *, stride: int, name: str) -> Any:
    """Reduce, convolve, expand, and add what came in; on another shape after a projection."""
    shortcut = x
    wide = EXPANSION * channels
    if stride > 1 or x.shape[-1] != wide:
        shortcut = convolve(x, wide, kernel=1, stride=stride, name=f"{name}.downsample.0")
        shortcut = FusedBatchNorm(name=f"{name}.downsample.1")(shortcut)
    for number, (kernel, step) in enumerate(((1, 1), (3, stride)), 1):
        x = convolve(x, channels, kernel=kernel, stride=step, name=f"{name}.conv{number}")
        x = FusedBatchNorm(name=f"{name}.bn{number}")(x)
        x = keras.layers.ReLU(name=f"{name}.relu{number}")(x)
    x = convolve(x, wide, kernel=1, stride=1, name=f"{name}.conv3")
    x = FusedBatchNorm(name=f"{name}.bn3", begins_at=0.0)(x)
    x = keras.layers.Add(name=f"{name}.add")([x, shortcut])
    return keras.layers.ReLU(name=f"{name}.relu3")(x)


def convolve(x: Any, channels: int, *, kernel: int, stride: int, name: str) -> Any:
    """Convolve without a bias, padded as torch pads: by half the kernel on every side."""
    pad = kernel // 2
    if stride > 1 and pad:  # TensorFlow's SAME would pad less on the left and at the top
        x = keras.layers.ZeroPadding2D(pad, name=f"{name}.pad")(x)
    return keras.layers.Conv2D(
        channels,
        kernel,
        stride,
        padding="same" if stride == 1 else "valid",
        use_bias=False,
        kernel_initializer=keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal"),
        name=name,
    )(x)
