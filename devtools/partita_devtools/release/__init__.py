"""Builds and publishes a release: wheels, signed images with their contents, and the chart.

`.github/workflows/release.yaml` runs it, and `make release-dry-run` with a registry on this machine. May import
`control_plane.releases`, `errors`, `machine` and `nodes`.
"""
