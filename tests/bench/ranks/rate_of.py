"""Runs a trainer program as one of its ranks; rank 0 prints the images/s of its summary.

rate_of.py trainer.pytorch.mnist --data DIR ...
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    code = importlib.import_module(sys.argv[1]).main(sys.argv[2:])
    if code == 0 and os.environ.get("RANK", "0") == "0":
        print(json.loads(Path("outputs/summary.json").read_text())["images_per_s"])
    sys.exit(code)
