"""The embedded environment: one machine, real processes, no cloud account."""
