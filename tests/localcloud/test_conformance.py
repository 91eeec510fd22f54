"""The local cloud against what is known of the platform: some four hundred checks on one local cloud."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.localcloud.conformance import facts
from tests.localcloud.conformance.refusals import REFUSALS
from tests.localcloud.conformance.scene import BUCKET, FACTS, Holds, Refusal, Scene
from tests.localcloud.conformance.shapes import Broken, broken_requests
from tests.support.local_cloud import local_cloud

BROKEN = list(broken_requests())
assert facts, "the module fills the list of facts"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("conformance")
    with local_cloud(root, "--runtime", "process", "--exit-when-idle", "0") as cloud:
        scene = Scene(cloud)
        scene.client("s3").create_bucket(Bucket=BUCKET)
        scene.kept["{vm}"] = scene.run()
        yield scene


def test_there_are_more_than_three_hundred_checks() -> None:
    assert len(BROKEN) + len(REFUSALS) + len(FACTS) > 300


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.id)
def test_a_member_that_cannot_be_is_refused_in_the_services_words(scene: Scene, broken: Broken) -> None:
    broken.check(scene)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.id)
def test_what_the_platform_refuses_is_refused(scene: Scene, refusal: Refusal) -> None:
    refusal.check(scene)


@pytest.mark.parametrize("holds", FACTS, ids=lambda holds: holds.id)
def test_what_is_known_of_the_platform_holds(scene: Scene, holds: Holds) -> None:
    holds.check(scene)
