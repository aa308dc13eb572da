"""trainer.pytorch.mnist, which tells in a file `evaluating` that its evaluation has begun."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trainer.pytorch import mnist

evaluate = mnist.evaluate


def evaluate_telling(*arguments: Any) -> Any:
    Path("evaluating").touch()
    return evaluate(*arguments)


mnist.evaluate = evaluate_telling

if __name__ == "__main__":
    sys.exit(mnist.main())
