"""Moves the bytes of datasets: one thread, many connections, no SDK between (ADR 0013)."""
