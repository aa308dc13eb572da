"""Runs stock_keras.py in a fork of what has loaded TensorFlow.

    main([MODULE, ...])     MODULE is where it takes Horovod from

Keras has looked for its home, and Horovod for an input of Keras, before the fork.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from horovod.mended import data
from keras.src.backend import config


def main(argv: Sequence[str]) -> int:
    """Run it with the module that it takes Horovod from."""
    sys.argv = ["stock_keras.py", argv[0]]
    config._KERAS_DIR = os.environ["KERAS_HOME"] = f"{os.environ['HOMES']}/{os.environ['RANK']}"
    data.mend()
    from tests.integration.programs import stock_keras

    stock_keras.main()
    return 0
