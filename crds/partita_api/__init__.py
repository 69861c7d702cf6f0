"""The language between Partita's rooms: the three custom resources and the Profile document.

Everything here is a frozen pydantic model; the CRD YAML in `crds/` and in the chart is generated from it
(`partita crds`).
"""
