"""Starts `python -m trainer.data.synthesize`."""

import sys

from trainer.data.synthesize.imagenet import main

if __name__ == "__main__":
    sys.exit(main())
