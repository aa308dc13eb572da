"""What every training program shares, whatever its framework. Standard library only."""
