"""Judges what a cloud stack declares by the rules of docs/policy.md."""
