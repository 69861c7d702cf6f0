"""The workers of a plan (one per vGPU): their reserved time, pools, the registry, and corrections of their profiles.

May import `scheduling.events`.
"""
