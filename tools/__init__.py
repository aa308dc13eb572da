"""Runs set-up and the demo for `make`. Standard library only, before any environment exists."""
