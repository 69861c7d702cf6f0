"""What the programs `check.py` share: they compare what a session serves with what its model's package answers."""
