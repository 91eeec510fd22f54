"""Local clouds that several tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.localcloud.endpoint import Endpoint, run_sandbox
from tests.support.local_cloud import LocalCloud, local_cloud


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A local cloud whose sandboxes are plain processes: the test's own servers are what they can reach."""
    with local_cloud(tmp_path_factory.mktemp("cloud"), "--runtime", "process", "--exit-when-idle", "0") as started:
        yield started


@pytest.fixture(scope="module")
def endpoint(cloud: LocalCloud) -> Endpoint:
    """A running sandbox of the module's cloud."""
    return run_sandbox(cloud)


@pytest.fixture(scope="module")
def other_sandbox(cloud: LocalCloud) -> Endpoint:
    """Another one."""
    return run_sandbox(cloud)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[LocalCloud]:
    """A local cloud of the test's own, to be stopped and killed."""
    with local_cloud(tmp_path, "--runtime", "process") as started:
        yield started
