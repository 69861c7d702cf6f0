"""The program of a profiling Job: it captures a model, cuts it into blocks, times them and prints the Profile.

Models run in processes of their own (`model_process`, `vgpu`). The process that writes the log runs no code of models.

May import `partita_api`, `partita_runtime.execution` and `partita_runtime.models`.
"""
