"""Fit a line with the package `fitting`, which only the image has."""

import argparse
import json
import os
from pathlib import Path

from fitting import fit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()

    points = [(x / 10, 3 * x / 10 + 1) for x in range(-10, 11)]
    epochs = list(fit(points, options.epochs, options.lr))
    for epoch in range(40, len(epochs) + 1, 40):
        print(f"epoch {epoch}: loss {epochs[epoch - 1][2]:.6f}")
    slope, offset, _ = epochs[-1]
    folder = Path(os.environ.get("TRAINYARD_OUTPUT_MODEL", "model"))
    folder.mkdir(parents=True, exist_ok=True)
    line = {"slope": round(slope, 3), "offset": round(offset, 3)}
    (folder / "line.json").write_text(json.dumps(line) + "\n", encoding="utf-8")
    print(f"y = {slope:.3f} x + {offset:.3f}")


if __name__ == "__main__":
    main()
