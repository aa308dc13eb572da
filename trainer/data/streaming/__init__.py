"""Fetches the shards of a packed dataset from the blob store while training reads them."""
