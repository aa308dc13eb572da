"""Finds, checks, decodes and crops pictures of class folders, shards and COCO sets."""
