"""The load generator: requests of the Open Inference Protocol, sent on schedule whether or not earlier ones ended.

`arrivals` and `azure_functions` do no I/O, and the simulator uses them too. May import `execution`, `function_server`,
`models`, `scheduling`, `serving.protocol`, `serving.session` and `serving.telemetry`.
"""
