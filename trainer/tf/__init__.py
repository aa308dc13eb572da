"""Holds training programs in TensorFlow: a loop of one's own, with Horovod."""
