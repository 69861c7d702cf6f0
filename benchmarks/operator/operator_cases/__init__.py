"""A crowd of sessions, pools and nodes, and an operator in a process of its own that looks after them."""
