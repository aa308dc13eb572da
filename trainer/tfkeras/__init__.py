"""Holds training programs in Keras 3 on TensorFlow: `fit`, with Horovod."""
