"""What the benchmarks of the live data plane share."""
