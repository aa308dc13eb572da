"""Packs folders of pictures into shards with an index."""
