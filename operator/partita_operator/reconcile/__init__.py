"""Pure reconcilers: (what is wanted, what is observed, now) -> (status, actions, events, when to look again).

They are level-triggered and idempotent: whatever state the world is in, repeating them leads to the state that
is wanted. Nothing in this package does I/O or reads a clock.
"""
