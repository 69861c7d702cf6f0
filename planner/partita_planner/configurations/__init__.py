"""The cost papers' own setting, as pure algorithms: machines that run configurations, and a DAG of modules with rates.

A configuration is <batch, duration, hardware, price>; a module has a rate and configurations; a workload is a DAG of
modules with one SLO. Times are in seconds, rates in requests per second, prices per hour. The number of machines is
unlimited. May import `solver`.
"""
