"""What a profiling Job runs: capture a model, cut it into blocks, time them, write the Profile."""
