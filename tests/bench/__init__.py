"""The benchmarks of `make bench`: ours and a peer in turn, medians and ratios, one table."""
