"""Pure reconcilers: (desired, observed, now) -> (status, actions, events, seconds until the next pass).

They are level-triggered and idempotent: repeated passes lead from any state to the desired one. Nothing here does I/O
or reads a clock. May import `ports` and `settings`.
"""
