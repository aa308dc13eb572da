"""A ParameterServerStrategy script as TensorFlow's guide has it; it does not know this project."""

import json
import os

import numpy as np
import tensorflow as tf

STEPS, BATCH, FEATURES, LEARNING_RATE = 5, 32, 4, 0.1


def batch(step):
    inputs = np.random.default_rng(step).normal(size=(BATCH, FEATURES))
    return inputs.astype("float32"), inputs.sum(1).astype("float32")


def main():
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            cluster.cluster_spec(),
            job_name=cluster.task_type,
            task_index=cluster.task_id,
            protocol="grpc",
        )
        print(f"{cluster.task_type} {cluster.task_id} serves", flush=True)
        server.join()
        return
    strategy = tf.distribute.experimental.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([FEATURES]))
    print(f"weights on {weights.device}", flush=True)

    @tf.function
    def train_step(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.linalg.matvec(inputs, weights) - targets) ** 2)
        weights.assign_sub(LEARNING_RATE * tape.gradient(loss, weights))
        return loss

    for step in range(STEPS):
        inputs, targets = batch(step)
        loss = coordinator.schedule(train_step, args=(tf.constant(inputs), tf.constant(targets)))
        coordinator.join()
        print(f"step {step} loss {float(loss.fetch()):.6f}", flush=True)
    os.makedirs("outputs", exist_ok=True)  # noqa: PTH103 (as everybody writes it)
    with open("outputs/weights.json", "w") as file:  # noqa: PTH123
        json.dump([float(each) for each in weights.numpy()], file)


if __name__ == "__main__":
    main()
