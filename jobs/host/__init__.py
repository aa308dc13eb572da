"""Asks this machine: terminal, progress, cache, files, processes, the project's folder."""
