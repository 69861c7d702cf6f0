"""A request's life in its frontend: held, executed along the DAG of its session, answered, across plan changes.

May import `function_server`, `models`, `serving.authentication`, `serving.central`, `serving.deploy`,
`serving.dispatch`, `serving.protocol`, `serving.telemetry` and `serving.transport`.
"""
