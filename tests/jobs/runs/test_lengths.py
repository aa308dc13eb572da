"""How long a training is, as its command says."""

import pytest

from jobs.runs.lengths import lengths_of, without_epochs


@pytest.mark.parametrize(
    ("words", "lengths"),
    [
        ("--epochs 12", {"epoch": 12}),
        ("--epochs=12 x", {"epoch": 12}),
        ("--num_train_epochs 3", {"epoch": 3}),
        ("--max-epochs 3", {"epoch": 3}),
        ("--epochs 3 --total-steps 40", {"step": 40, "epoch": 3}),
        ("--max_steps=40", {"step": 40}),
        ("--warmup-epochs 3 --log-steps 5 -epochs 3 epochs 3", {}),
        ("--epochs", {}),
        ("--epochs 0", {}),
        ("--epochs 9999999999999999", {}),
        ("--epochs ²", {}),
        ("--epochs=", {}),
    ],
)
def test_lengths_are_read_from_the_options_that_scripts_use(words, lengths):
    assert list(lengths_of(words.split()).items()) == list(lengths.items())


def test_epochs_are_left_out_with_their_value():
    words = "train.py --epochs 3 --lr 1 --num-epochs=4 5 --steps 9"
    assert without_epochs(words.split()) == ["train.py", "--lr", "1", "5", "--steps", "9"]
