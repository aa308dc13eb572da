"""The peer of P6: what Horovod's own benchmark for TensorFlow does, in our words.

Source: horovod, examples/tensorflow2/tensorflow2_synthetic_benchmark.py (0.28.1; its source archive
on PyPI does not carry the examples): Keras's own ResNet-50 and SGD in fp32 on one batch of uniform
noise, Horovod's gradient tape, one tf.function. It prints images per second last. The script as
published stops at Keras 3, whose variables Horovod's tape does not know: it is given what is in them.
"""

from __future__ import annotations

import argparse
import time

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--warm-up", type=int, default=10)
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()

hvd.init()
model = keras.applications.ResNet50(weights=None)
weights = [variable.value for variable in model.trainable_variables]
optimizer = keras.optimizers.SGD(0.01)
images = tf.random.uniform([options.batch_size, 224, 224, 3])
labels = tf.random.uniform([options.batch_size], minval=0, maxval=999, dtype=tf.int64)


@tf.function
def step() -> None:
    with tf.GradientTape() as tape:
        scores = model(images, training=True)
        loss = keras.losses.sparse_categorical_crossentropy(labels, scores)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


for _ in range(options.warm_up):
    step()
began = time.perf_counter()
for _ in range(options.steps):
    step()
print(options.batch_size * options.steps / (time.perf_counter() - began))
