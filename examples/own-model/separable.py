"""Train a small network of separable convolutions in Keras on pictures in class folders."""

import sys

import keras

from trainer.tf.network import Normalise
from trainer.tfkeras import resnet50


def build(num_classes: int, image_size: int) -> keras.Model:
    """Four blocks of separable convolutions; ImageNet wants more of them, and more width."""
    images = keras.Input((image_size, image_size, 3), dtype="uint8")
    x = keras.layers.Conv2D(32, 3, strides=2, padding="same")(Normalise()(images))
    for channels in (64, 64, 128, 128):
        x = keras.layers.SeparableConv2D(channels, 3, strides=1, padding="same")(x)
        x = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.9)(x))
        x = keras.layers.MaxPooling2D(2, padding="same")(x)
    x = keras.layers.Dropout(0.1)(keras.layers.GlobalAveragePooling2D()(x))
    return keras.Model(images, keras.layers.Dense(num_classes, dtype="float32")(x))


# Flags of the program that suit this network; those of the command line win.
DEFAULTS = ("--lr", "0.4", "--schedule", "cosine", "--warmup-epochs", "1")

if __name__ == "__main__":
    sys.exit(
        resnet50.main(
            program="separable", description=__doc__ or "", build=build, defaults=DEFAULTS
        )
    )
