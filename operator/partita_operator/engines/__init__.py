"""Serving engines: they run the frontends and stage replicas of a plan on Ray Serve, and report what runs.

To add an engine: add its name to `EngineType` in `partita_api.inferencesession`, put its code into a folder here with a
class that implements `ports.ServingEngine`, and let `selection.py` create it. `rollout.py` decides the order of changes
for every engine. May import `kube`, `ports`, `reconcile` and `settings`.
"""
