"""Starts each rank, on every engine: standard library only, Python 3.9."""
