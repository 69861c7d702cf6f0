"""How replicas and plans follow the load. Pure: the operator and the simulator call the same rule."""
