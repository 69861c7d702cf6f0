"""A population of sessions, pools and nodes, and an operator in a separate process that reconciles them."""
