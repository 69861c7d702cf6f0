"""Development tools: a Kubernetes control plane, nodes and a Ray cluster on one machine, the demonstration, the site.

They are a separate distribution, `partita-devtools`, which no image contains. Each cluster consists of plain processes
with one state directory. May import `partita_api`, `partita_operator`, `partita_planner` and `partita_runtime`.
"""
