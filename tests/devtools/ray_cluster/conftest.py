"""What the tests of local Ray clusters share."""

import pytest
from tests.fixtures import RayClusters


@pytest.fixture
def no_other_cluster(started_clusters: RayClusters) -> None:
    started_clusters.stop()
