"""A run's folder: records, logs, checkpoints, report."""
