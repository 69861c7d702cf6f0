"""The parts of `whole_systems.py`: PPipe's configurations, and systems of a plan and a data plane."""
