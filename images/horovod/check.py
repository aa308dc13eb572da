"""Says whether the installed Horovod loads and has its transports; exit code 1 if not."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

MODULES = {"pytorch": "horovod.torch", "tensorflow": "horovod.tensorflow"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", choices=sorted(MODULES), required=True)
    parser.add_argument("--gpu-operations", choices=["none", "nccl"], default="none")
    options = parser.parse_args()
    hvd = import_module(MODULES[options.framework])
    if hasattr(hvd, "DistributedGradientTape"):
        import_module("horovod.keras")
        import_module("horovod.tensorflow.keras")
    built = {"gloo": bool(hvd.gloo_built()), "mpi": bool(hvd.mpi_built())}
    if options.gpu_operations == "nccl":
        built["nccl"] = bool(hvd.nccl_built())
    print(built)
    if not all(built.values()):
        sys.exit(f"this Horovod lacks {', '.join(name for name in built if not built[name])}")


if __name__ == "__main__":
    main()
