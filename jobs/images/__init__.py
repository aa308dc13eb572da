"""Runtimes and container images."""
