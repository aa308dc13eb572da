"""Access to the blob store, and `launch`'s identity there."""
