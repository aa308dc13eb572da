"""Starts `python -m trainer.data.prepare`."""

import sys

from trainer.data.prepare.program import main

if __name__ == "__main__":
    sys.exit(main())
