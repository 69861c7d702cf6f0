"""The experiments of `benchmarks/scheduling/goodput.py`."""
