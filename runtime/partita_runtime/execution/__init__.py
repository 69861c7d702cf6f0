"""Execution of one stage: a range of a model's blocks on one vGPU, with the backend of the session.

Only modules named `torch_*` and `process_settings` load torch. May import `models` and `scheduling.plan`.
"""
