"""Parts of the benchmark of what the examples save."""
