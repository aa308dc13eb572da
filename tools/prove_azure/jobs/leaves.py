"""Leaves with a checkpoint and code 75 at first, and finds the checkpoint afterwards."""

import json
import os
import sys
from pathlib import Path

checkpoint = Path(os.environ["TRAINYARD_CHECKPOINT_DIR"], "step-000000001-aaaaaaaa")
if checkpoint.is_dir():
    print("the checkpoint of the first attempt is here")
    sys.exit(0)
checkpoint.mkdir()
(checkpoint / "manifest.json").write_text(json.dumps({"step": 1}), encoding="utf-8")
print("leaving with a checkpoint")
sys.exit(75)
