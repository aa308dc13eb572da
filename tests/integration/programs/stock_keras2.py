"""A script for Keras 2 and Horovod, with names that Keras 3 lacks; it has never heard of this project."""

import json
import os

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
rng = np.random.default_rng(hvd.rank())
inputs = rng.normal(size=(64, 3)).astype("float32")
labels = 3 * inputs.sum(axis=1, keepdims=True)

model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(3,))])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.1 * hvd.size()))
model.compile(loss="mse", optimizer=optimizer, experimental_run_tf_function=False)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
]
model.fit(
    inputs, labels, batch_size=8, epochs=8, callbacks=callbacks, verbose=2 * (hvd.rank() == 0)
)

os.makedirs("outputs", exist_ok=True)  # noqa: PTH103 (as everybody writes it)
with open(f"outputs/weights-{hvd.rank()}.json", "w") as file:  # noqa: PTH123
    json.dump(model.get_weights()[0].ravel().tolist(), file)
