"""Locks, durable writes, unfinished folders and worker processes."""
