"""What the operator writes for Ray Serve, and what the deployed processes announce: applications, names, epochs.

May import `transport`.
"""
