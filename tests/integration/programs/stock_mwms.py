"""A MultiWorkerMirroredStrategy script as everybody writes it; it has never heard of this project."""

import json
import os

import numpy as np
import tensorflow as tf

STEPS, BATCH, FEATURES, LEARNING_RATE = 5, 16, 4, 0.1


def global_batch(step, num_workers):
    inputs = np.random.default_rng(step).normal(size=(BATCH * num_workers, FEATURES))
    return inputs.astype("float32"), inputs.sum(1).astype("float32")


def main():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    index, num_workers = task["index"], strategy.num_replicas_in_sync
    with strategy.scope():
        weights = tf.Variable(tf.zeros([FEATURES]))

    @tf.function
    def train_step(inputs, targets):
        def replica_step(inputs, targets):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.linalg.matvec(inputs, weights) - targets) ** 2)
            gradient = tape.gradient(loss, weights)
            mean = tf.distribute.get_replica_context().all_reduce("mean", [loss, gradient])
            weights.assign_sub(LEARNING_RATE * mean[1])
            return mean[0]

        return strategy.run(replica_step, args=(inputs, targets))

    for step in range(STEPS):
        inputs, targets = global_batch(step, num_workers)
        mine = slice(index * BATCH, (index + 1) * BATCH)
        loss = train_step(tf.constant(inputs[mine]), tf.constant(targets[mine]))
        print(f"worker {index} of {num_workers} step {step} loss {float(loss):.6f}", flush=True)
    os.makedirs("outputs", exist_ok=True)  # noqa: PTH103 (as everybody writes it)
    with open(f"outputs/weights-{index}.json", "w") as file:  # noqa: PTH123
        json.dump([float(each) for each in weights.numpy()], file)


if __name__ == "__main__":
    main()
