"""Puts images/horovod/mended into the Horovod that is installed for the Python that runs this.

Horovod 0.28.1 is the last release and knows no Keras 3; after the compiled wheel, so that a change of
these forms compiles nothing anew. Standard library only.
"""

from __future__ import annotations

import argparse
import shutil
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
# File of Horovod -> the function of `horovod.mended` that it calls at its end.
HOOKS = {
    "tensorflow/__init__.py": "mend_tensorflow",
    "_keras/__init__.py": "mend_keras",
    "keras/__init__.py": "mend_keras_alone",
}


def main() -> None:
    """Copy the package and add the calls; a second time changes nothing. PyTorch needs neither."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", choices=["pytorch", "tensorflow"], required=True)
    if parser.parse_args().framework != "tensorflow":
        return
    horovod = Path(sysconfig.get_path("platlib")) / "horovod"
    target = horovod / "mended"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(HERE / "mended", target, ignore=shutil.ignore_patterns("__pycache__"))
    for name, function in HOOKS.items():
        path = horovod / name
        text = path.read_text(encoding="utf-8")
        call = f"\n\nfrom horovod import mended\n\nmended.{function}()\n"
        if not text.endswith(call):
            # A new file: an installer may have linked this one to its cache.
            partial = path.with_suffix(".partial")
            partial.write_text(text + call, encoding="utf-8")
            partial.replace(path)


if __name__ == "__main__":
    main()
