"""Reserved time on vGPUs and networks: timelines, the path search, and dispatched batches.

May import `scheduling.events`, `scheduling.modules`, `scheduling.queues` and `scheduling.workers`.
"""
