"""Execution of one stage: a range of a model's blocks on one vGPU, by the backend that the plan names."""
