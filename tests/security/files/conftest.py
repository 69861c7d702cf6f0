"""What the tests of several files share."""

import pytest
from tests.security.files.exported_archive import ExportedArchive, exported_branches


@pytest.fixture(scope="module")
def harmless() -> ExportedArchive:
    return ExportedArchive.of(exported_branches())
