"""The experiments of `benchmarks/goodput.py`."""
