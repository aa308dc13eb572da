"""Define one verb of `launch` a module: its options, the call, and what it prints."""
