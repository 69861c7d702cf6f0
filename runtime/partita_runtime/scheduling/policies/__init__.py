"""Batching policies: Partita's own, and those of other systems for comparison.

May import `scheduling.events`, `scheduling.modules`, `scheduling.queues`, `scheduling.reservations` and
`scheduling.workers`.
"""
