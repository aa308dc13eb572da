"""What `make` calls: set-up and the demo. Standard library only, run before any environment exists."""
