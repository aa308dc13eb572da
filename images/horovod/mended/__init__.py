"""Horovod's forms for TensorFlow and Keras, mended for the Keras that is installed.

`images/horovod/mend.py` puts this package into an installed Horovod as `horovod.mended`, and has each
module of Horovod that it mends call one function of it at its end.
"""

from __future__ import annotations


def has_keras_3() -> bool:
    import keras

    return int(keras.__version__.partition(".")[0]) >= 3


def mend_tensorflow() -> None:
    """Mend `horovod.tensorflow`, which the other two import."""
    from horovod.mended import data

    data.mend()
    if has_keras_3():
        from horovod.mended import variables

        variables.mend()


def mend_keras() -> None:
    """Mend what `horovod.keras` and `horovod.tensorflow.keras` share."""
    if has_keras_3():
        from horovod.mended import callbacks, optimizer

        callbacks.mend()
        optimizer.mend()
    else:
        from horovod.mended import keras2

        keras2.mend_momentum()
        keras2.mend_load_model()


def mend_keras_alone() -> None:
    """Mend `horovod.keras`, which scripts from the days of TensorFlow 1 import."""
    if not has_keras_3():
        from horovod.mended import keras2

        keras2.add_names_of_tensorflow_1()
