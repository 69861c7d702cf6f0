"""Profiles, pools and a session in; a plan out. Pure: no I/O, and the same answer for the same inputs."""
