"""Starts `python -m trainer.data.pack`."""

import sys

from trainer.data.pack.program import main

if __name__ == "__main__":
    sys.exit(main())
