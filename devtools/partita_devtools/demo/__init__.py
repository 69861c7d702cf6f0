"""A demonstration from manifests to a report: apply, wait, send load, look, compare."""
