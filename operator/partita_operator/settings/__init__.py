"""The operator's settings: one model, and how the config file, environment variables and flags fill it.

May import the API models and the planner's and the runtime's data types; never the reconcilers, handlers or engines.
"""
