"""A home that is removed while its local cloud serves, and one that is made anew in its place."""

from __future__ import annotations

import shutil
import time

from tests.localcloud.endpoint import hello, run_sandbox
from tests.support.local_cloud import LocalCloud


def test_the_local_cloud_of_a_removed_home_ends(mortal: LocalCloud) -> None:
    old = mortal.process
    assert old is not None
    shutil.rmtree(mortal.home)
    # The next one to come makes the folders before anything serves in them.
    (mortal.home / "local").mkdir(parents=True, mode=0o700)
    assert old.wait(20) == 0
    assert not mortal.cloud_file.exists()


def test_a_home_made_anew_in_its_place_is_served_by_its_own_local_cloud_alone(mortal: LocalCloud) -> None:
    old = mortal.process
    assert old is not None
    shutil.rmtree(mortal.home)
    mortal.start()
    told = mortal.told()
    deadline = time.monotonic() + 20
    # Whoever reads the file now, or after the old process went, must find the one whose authority lies beside it.
    while old.poll() is None:
        assert mortal.told() == told
        assert time.monotonic() < deadline
    assert mortal.told() == told
    endpoint = run_sandbox(mortal)
    assert hello(endpoint)["sandbox"]["id"] == endpoint.id
