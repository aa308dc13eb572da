"""Reads stacks: their environments, changes, costs and health."""
