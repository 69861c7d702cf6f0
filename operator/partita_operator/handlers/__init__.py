"""The operator at work: watches feed a queue of keys, and workers look at the world, decide, and act."""
