"""Sums over mirrored workers without end; one of them fails.    failing_mwms.py WAY RANK"""

import failing

failing.sign_of_life()

import tensorflow as tf  # noqa: E402

strategy = tf.distribute.MultiWorkerMirroredStrategy()
index = strategy.cluster_resolver.task_id
failing.is_loaded.set()


@tf.function
def add_up():
    def one():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([1000]))

    return strategy.run(one)


for step in range(1_000_000):
    add_up()
    if step == 3 and failing.is_guilty(index):
        failing.fail()
    if step < 4:
        print(f"step {step}")
