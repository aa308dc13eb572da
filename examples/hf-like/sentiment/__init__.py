"""Tells praise from complaint: data, model and training loop of a small text classifier."""
