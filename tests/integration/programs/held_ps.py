"""Trains with ParameterServerStrategy until the file `release` is in the run's folder."""

import os
from pathlib import Path

import tensorflow as tf


def train(cluster):
    strategy = tf.distribute.experimental.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def step():
        return total.assign_add(1.0)

    count = 0
    while not Path(os.environ["TRAINYARD_RUN_DIR"], "release").exists():
        coordinator.schedule(step)
        coordinator.join()
        count += 1
        if count <= 3:
            print(f"step {count}", flush=True)


if __name__ == "__main__":
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type == "chief":
        train(cluster)
    else:
        tf.distribute.Server(
            cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id
        ).join()
