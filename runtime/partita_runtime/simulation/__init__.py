"""Discrete-event simulation of a plan: the scheduling core of production, on a virtual clock and emulated workers."""
