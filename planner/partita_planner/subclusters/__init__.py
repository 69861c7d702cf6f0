"""Sub-clusters: which models share which GPUs, when there are too many for each GPU to hold all (Symphony, 4.4)."""
