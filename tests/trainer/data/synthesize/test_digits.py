"""Drawn digits are whole IDX files, equal for equal arguments, and each digit looks its own way."""

from __future__ import annotations

import tempfile

from trainer.data.pictures.idx import read_idx
from trainer.data.synthesize.digits import draw_digit, make_default_digits


def test_a_set_is_in_mnists_format_and_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = make_default_digits(num_train=30, num_test=11, seed=3)
    shape, pixels = read_idx(folder, "train-images-idx3-ubyte")
    assert (shape, len(pixels)) == ((30, 28, 28), 30 * 784)
    assert read_idx(folder, "t10k-labels-idx1-ubyte") == ((11,), bytes([*range(10), 0]))
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert make_default_digits(num_train=30, num_test=11, seed=3) == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_equal_keys_draw_equal_pictures_and_others_do_not():
    assert draw_digit(7, "a") == draw_digit(7, "a")
    assert draw_digit(7, "a") != draw_digit(7, "b")


def test_strokes_are_light_and_the_ground_is_dark():
    eight, one = draw_digit(8, "k"), draw_digit(1, "k")
    light = [sum(value > 128 for value in picture) for picture in (eight, one)]
    assert 784 * 0.5 > light[0] > light[1] > 20
