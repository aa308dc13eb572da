"""Ends with an exit code of its own."""

import sys

print("about to fail")
sys.exit(3)
