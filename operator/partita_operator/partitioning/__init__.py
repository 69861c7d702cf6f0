"""Who cuts GPUs into slices: NVIDIA's mig-manager."""
