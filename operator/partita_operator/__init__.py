"""The operator: reconciling cores, kopf handlers, serving engines, autoscaler and command line."""
