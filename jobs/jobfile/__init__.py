"""Reads a job file into a JobSpec and resolves it."""
