"""Holds PyTorch training programs, one a file."""
