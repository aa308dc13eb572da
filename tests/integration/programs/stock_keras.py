"""Every form of Horovod for Keras, as scripts have them; it has never heard of this project.

    stock_keras.py horovod.keras|horovod.tensorflow.keras

Each rank has data and first weights of its own, and writes what it ended with to outputs/RANK.json.
"""

import json
import os
import sys
from importlib import import_module

import horovod.tensorflow as hvd_tf
import keras
import numpy as np
import tensorflow as tf

hvd = import_module(sys.argv[1])
NUM_STEPS = 4


def make_data():
    rng = np.random.default_rng(hvd.rank())
    inputs = rng.normal(size=(8 * NUM_STEPS, 3)).astype("float32")
    return inputs, 3 * inputs.sum(axis=1, keepdims=True)


def make_model():
    first = keras.initializers.Constant(hvd.rank() + 1.0)
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer=first, input_shape=(3,))
    return keras.Sequential([layer])


def weights(model):
    return model.get_weights()[0].ravel().tolist()


def fit(model, optimizer, *callbacks, epochs=1):
    model.compile(
        loss=keras.losses.MeanSquaredError(),
        optimizer=optimizer,
        metrics=[keras.metrics.MeanAbsoluteError(name="mae")],
    )
    return fit_on(model, *callbacks, epochs=epochs)


def fit_on(model, *callbacks, epochs=1):
    inputs, labels = make_data()
    fitted = model.fit(
        *(inputs, labels),
        batch_size=8,
        shuffle=False,
        epochs=epochs,
        callbacks=list(callbacks),
        verbose=0,
    )
    return {name: [float(each) for each in values] for name, values in fitted.history.items()}


def with_callbacks():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.04))
    history = fit(
        *(model, optimizer),
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.04, warmup_epochs=2, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.04, multiplier=0.1, start_epoch=2),
        epochs=4,
    )
    return {"weights": weights(model), "history": history}


def with_several_passes():
    model = make_model()
    optimizer = hvd_tf.DistributedOptimizer(
        keras.optimizers.SGD(0.01), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    fit(model, optimizer, hvd.callbacks.BroadcastGlobalVariablesCallback(0))
    return {"weights": weights(model)}


def with_tape(wrap, **settings):
    model, optimizer = make_model(), keras.optimizers.SGD(0.04)
    optimizer.build(model.trainable_variables)
    if settings:
        settings["groups"] = [model.trainable_variables]

    @wrap
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - labels) ** 2)
        tape = hvd_tf.DistributedGradientTape(tape, **settings)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for number, (inputs, labels) in enumerate(
        tf.data.Dataset.from_tensor_slices(make_data()).batch(8)
    ):
        step(inputs, labels)
        if number == 0:
            hvd_tf.broadcast_variables(model.variables, root_rank=0)
            hvd_tf.broadcast_variables(optimizer.variables, root_rank=0)
    return {"weights": weights(model)}


def with_loaded_model(file):
    if hvd.rank() == 0:
        made = make_model()
        fit(made, keras.optimizers.SGD(0.02, momentum=0.9))
        made.save(file)
    hvd.allreduce(0.0, name="saved")
    model = hvd.load_model(file)
    before = weights(model)
    momenta = [each.numpy().ravel().tolist() for each in model.optimizer.variables]
    fit_on(model)
    if hvd.rank() == 0:
        model.save(f"again-{file}")
        again = keras.models.load_model(f"again-{file}")
        assert type(again.optimizer) is keras.optimizers.SGD
    return {"before": before, "momenta": momenta, "weights": weights(model)}


def with_data_of_keras():
    (images, labels), _ = keras.datasets.mnist.load_data(path=f"mnist-{hvd.rank()}.npz")
    (same, _), _ = tf.keras.datasets.mnist.load_data()
    assert np.array_equal(images, same)
    return {"images": images.tolist(), "labels": labels.tolist()}


def with_old_argument():
    try:
        make_model().compile(loss="mse", experimental_run_tf_function=False)
    except TypeError as error:
        return str(error)
    return "taken"


def main():
    hvd.init()
    results = {
        "old argument": with_old_argument(),
        "data of keras": with_data_of_keras(),
        "callbacks": with_callbacks(),
        "passes": with_several_passes(),
        "eager tape": with_tape(lambda step: step),
        "tape in a function": with_tape(tf.function),
        "grouped tape": with_tape(tf.function, groups=True),
        "loaded .keras": with_loaded_model("model.keras"),
        "loaded .h5": with_loaded_model("model.h5"),
    }
    os.makedirs("outputs", exist_ok=True)  # noqa: PTH103 (as everybody writes it)
    with open(f"outputs/{hvd.rank()}.json", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(results, file)


if __name__ == "__main__":
    main()
