"""The blob store, and who `launch` is to it."""
