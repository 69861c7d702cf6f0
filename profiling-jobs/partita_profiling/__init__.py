"""The program of a profiling Job: it captures a model, cuts it into blocks, times them and prints the Profile.

May import `partita_api`, `partita_runtime.execution` and `partita_runtime.models`.
"""
