"""Names of the other Keras are found in a script, and what a plan says of them."""

import pytest

from jobs.jobfile.keras_names import KerasName, keras2_names, keras3_names, other_keras_note

OLD = """\
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras.optimizers import legacy
import keras.backend as K

opt = tf.keras.optimizers.legacy.SGD(lr=0.1)
model.compile(optimizer=opt, experimental_run_tf_function=False)
hvd.broadcast_variables(opt.variables(), root_rank=0)
hvd.broadcast_variables(self.optimizer.variables(), root_rank=0)
accuracy.reset_states()
tf.estimator.Estimator(model)
K.set_session(None)
model.fit_generator(rows)
rate = model.optimizer.lr
"""
NEW = """\
import keras
import tensorflow as tf
from keras import ops

opt = keras.optimizers.SGD(learning_rate=0.1)
model.compile(optimizer=opt, loss="mse")
hvd.broadcast_variables(opt.variables, root_rank=0)
options.variables()
model.variables()
accuracy.reset_state()
rate = args.lr
keras.random.normal((3,))
"""


def test_names_of_keras_2_are_found_with_their_lines():
    assert keras2_names(OLD) == [
        (3, "keras.optimizers.legacy"),
        (6, "SGD(lr=...)"),
        (6, "keras.optimizers.legacy"),
        (7, "experimental_run_tf_function"),
        (8, "optimizer.variables()"),
        (9, "optimizer.variables()"),
        (10, "reset_states()"),
        (11, "tensorflow.estimator"),
        (12, "keras.backend.set_session"),
        (13, "fit_generator()"),
        (14, "optimizer.lr"),
    ]
    assert keras3_names(OLD) == []


def test_names_of_keras_3_are_found_and_none_of_them_is_keras_2s():
    assert keras3_names(NEW) == [(3, "keras.ops"), (12, "keras.random")]
    assert keras2_names(NEW) == []


@pytest.mark.parametrize("text", ["def (", "\0", "(" * 5000])
def test_what_is_no_python_has_no_names(text):
    assert keras2_names(text) == keras3_names(text) == []


def found(source, file="train.py"):
    names = {2: keras2_names(source), 3: keras3_names(source)}
    return {key: [KerasName(file, *each) for each in value] for key, value in names.items()}


def test_the_note_names_the_line_and_the_image_that_runs_the_script():
    assert other_keras_note("tensorflow", "train.py", found(OLD)) == (
        "train.py uses names of Keras 2 that `tensorflow` lacks "
        "(line 3: keras.optimizers.legacy and 10 more); hint: image: tensorflow-keras2"
    )
    assert other_keras_note("tensorflow-keras2", "train.py", found(NEW)) == (
        "train.py uses names of Keras 3 that `tensorflow-keras2` lacks "
        "(line 3: keras.ops and 1 more); hint: image: tensorflow"
    )
    assert other_keras_note("tensorflow-keras2", "train.py", found(NEW, "net/a.py")) == (
        "train.py uses names of Keras 3 that `tensorflow-keras2` lacks "
        "(net/a.py, line 3: keras.ops and 1 more); hint: image: tensorflow"
    )
    assert other_keras_note("tensorflow", "train.py", found(NEW)) is None
    assert other_keras_note("tensorflow-keras2", "train.py", found(OLD)) is None
    assert other_keras_note("pytorch", "train.py", found(OLD)) is None
