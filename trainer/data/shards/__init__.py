"""Reads and writes the index and the records of packed shards."""
