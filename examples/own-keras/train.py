"""Tell four clouds of points apart: Keras 3's `fit`, trained with Horovod."""

import argparse
import json
import os
import time
from pathlib import Path

import horovod.keras as hvd
import keras
import numpy as np


def make_clouds(num_points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points round four centres, and the cloud of each."""
    generator = np.random.default_rng(seed)
    clouds = generator.integers(4, size=num_points)
    centres = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]], dtype=np.float32)
    points = centres[clouds] + generator.normal(scale=0.35, size=(num_points, 2))
    return points.astype(np.float32), clouds


class Log(keras.callbacks.Callback):
    """Append to the metrics that `launch report` reads; without `launch`, write nothing."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        folder = os.environ.get("TRAINYARD_RUN_DIR")
        if not folder or hvd.rank() != 0:
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with open(Path(folder) / "metrics.jsonl", "a", encoding="utf-8") as file:
            for name, value in (logs or {}).items():
                split = "test" if name.startswith("val_") else "train"
                line = {"ts": now, "step": int(self.model.optimizer.iterations.numpy())}
                line |= {"epoch": epoch + 1, "split": split, "name": name.removeprefix("val_")}
                file.write(json.dumps({**line, "value": float(value)}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.01)
    options = parser.parse_args()

    hvd.init()
    points, clouds = make_clouds(2048, seed=1)
    points, clouds = points[hvd.rank() :: hvd.size()], clouds[hvd.rank() :: hvd.size()]
    test = make_clouds(512, seed=2)

    keras.utils.set_random_seed(hvd.rank())  # ranks begin apart: the broadcast makes them one
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(32, "tanh"), keras.layers.Dense(4)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(options.lr))
    model.compile(optimizer, loss, metrics=["accuracy"])
    model.fit(
        points,
        clouds,
        batch_size=options.batch_size // hvd.size(),
        epochs=options.epochs,
        validation_data=test,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            Log(),  # after the average
        ],
        verbose=2 if hvd.rank() == 0 else 0,
    )

    weights = sum(each.sum(dtype="float64") for each in model.get_weights())
    if np.unique(hvd.allgather(np.array([weights]))).size != 1:
        raise SystemExit("error: ranks hold different weights")
    accuracy = model.evaluate(*test, verbose=0)[1]
    if hvd.rank() == 0:
        folder = Path(os.environ.get("TRAINYARD_OUTPUT_MODEL", "model"))
        folder.mkdir(parents=True, exist_ok=True)
        model.save(folder / "clouds.keras")
        print(f"final accuracy {accuracy:.4f} (ranks: {hvd.size()})")


if __name__ == "__main__":
    main()
