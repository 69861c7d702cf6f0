"""Execution of one stage: a range of a model's blocks on one vGPU, with the backend of the session.

May import `models` and the data types of `scheduling`; only modules named `torch_*` and `process_settings` load torch.
"""
