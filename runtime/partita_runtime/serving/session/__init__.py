"""A request's life in its frontend: held, executed along the DAG of its session, answered, across plan changes.

May import `central`, `dispatch`, `protocol`, `telemetry`, `deploy` and `transport`; never `ingress`.
"""
