"""MIG: which slices to cut GPUs into, so that they serve a load, and that they fit (PARIS, section IV-B)."""
