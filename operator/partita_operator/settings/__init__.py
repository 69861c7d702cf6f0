"""The operator's settings: one model, and how the config file, environment variables and flags fill it.

May import no other folder.
"""
