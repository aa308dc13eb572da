"""Versions of datasets in the blob store."""
