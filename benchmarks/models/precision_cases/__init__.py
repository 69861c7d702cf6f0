"""Parts of the benchmark of what backends and half precision change in the examples' answers."""
