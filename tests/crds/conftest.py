"""The API server for the tests of the CRDs."""

from tests.operator.kubectl import cluster_with_crds

cluster = cluster_with_crds
