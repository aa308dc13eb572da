"""Adds up the workers by TensorFlow's own strategy for several of them."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
context = tf.distribute.get_replica_context


@tf.function
def add_up():
    """Give the sum of the workers' numbers."""
    return strategy.run(lambda: context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0)))


print("sum", int(strategy.experimental_local_results(add_up())[0].numpy()), "of workers")
