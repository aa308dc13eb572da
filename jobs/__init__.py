"""Runs training jobs on the environments that stacks declare."""
