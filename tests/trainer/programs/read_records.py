"""Reads TFRecord files as TensorFlow does: main([FEATURES, PICTURES, COCO]) prints their rows as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import tensorflow as tf


def rows(path: str) -> Iterator[dict[str, list[object]]]:
    """Every feature of every record."""
    for raw in tf.data.TFRecordDataset(path):
        example = tf.train.Example.FromString(raw.numpy())
        row = {}
        for key, feature in example.features.feature.items():
            values = list(getattr(feature, feature.WhichOneof("kind")).value)
            row[key] = [v.hex() if isinstance(v, bytes) else v for v in values]
        yield row


def parsed(path: str) -> Iterator[list[object]]:
    """Picture, label and shape of every record, as docs/shards.md shows it."""
    description = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    for raw in tf.data.TFRecordDataset(path):
        example = tf.io.parse_single_example(raw, description)
        picture = tf.io.decode_image(example["image/encoded"], channels=3)
        encoded = example["image/encoded"].numpy().hex()
        yield [encoded, int(example["image/class/label"]), picture.shape.as_list()]


def main(argv: Sequence[str]) -> None:
    """Read all of them."""
    features, pictures, coco = argv
    told = [list(rows(features)), list(rows(pictures)), list(parsed(pictures)), list(rows(coco))]
    print(json.dumps(told))
