"""The peer of D3: what the usual script for ImageNet's TFRecords does, in our words.

Source: build_imagenet_data.py, as TensorFlow's Inception model published it: two threads share a
session; each JPEG is decoded in it, for nothing but its height and width; a tf.train.Example is
built and written by TensorFlow. It prints pictures per second last, without imports and listing.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

NUM_THREADS, NUM_SHARDS = 2, 8

folder, target = Path(sys.argv[1]), Path(sys.argv[2])
target.mkdir(parents=True)
classes = sorted(path.name for path in folder.iterdir())
files = [(path, label) for label, name in enumerate(classes) for path in (folder / name).iterdir()]
np.random.default_rng(12345).shuffle(files)

with tf.Graph().as_default():
    encoded = tf.compat.v1.placeholder(tf.string)
    decoded = tf.io.decode_image(encoded, channels=3)
    session = tf.compat.v1.Session()


def bytes_of(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def number_of(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def write_shards(numbers: range) -> None:
    for number in numbers:
        name = str(target / f"train-{number:05}-of-{NUM_SHARDS:05}")
        with tf.io.TFRecordWriter(name) as writer:
            for path, label in files[number::NUM_SHARDS]:
                with tf.io.gfile.GFile(str(path), "rb") as file:
                    data = file.read()
                height, width, _ = session.run(decoded, {encoded: data}).shape
                features = {
                    "image/height": number_of(height),
                    "image/width": number_of(width),
                    "image/colorspace": bytes_of(b"RGB"),
                    "image/channels": number_of(3),
                    "image/class/label": number_of(label),
                    "image/class/text": bytes_of(path.parent.name.encode()),
                    "image/format": bytes_of(b"JPEG"),
                    "image/filename": bytes_of(path.name.encode()),
                    "image/encoded": bytes_of(data),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())


session.run(decoded, {encoded: files[0][0].read_bytes()})
began = time.perf_counter()
threads = [
    threading.Thread(target=write_shards, args=(range(start, NUM_SHARDS, NUM_THREADS),))
    for start in range(NUM_THREADS)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(files) / (time.perf_counter() - began))
