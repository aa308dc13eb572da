"""PyTorch training programs, one per file."""
