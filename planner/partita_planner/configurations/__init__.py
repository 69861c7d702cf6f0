"""The cost papers' own setting, as pure algorithms: machines that run configurations, and a DAG of modules with rates.

A configuration is <batch, duration, hardware, price>; a module has a rate and configurations; a workload is a DAG of
modules with one SLO. Times are seconds, rates requests per second, prices per hour. Machines can be had without end.
"""
