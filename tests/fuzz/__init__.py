"""Fuzzing of what reads strangers' files in C."""
