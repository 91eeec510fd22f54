"""Whatever is asked of the local cloud, it answers: no error of its own, and in time."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest

from tests.localcloud.conformance.fuzz import Fuzz
from tests.localcloud.conformance.scene import BUCKET, IMAGE, MANAGED, UNKNOWN_VM
from tests.localcloud.signed import send
from tests.support.local_cloud import LocalCloud


def fuzz(cloud: LocalCloud, count: int, seed: int, *, image: str = IMAGE + "none") -> Counter[int]:
    """Send so many requests; how often each status came. A request that is not answered within ten seconds raises.

    Where there is an `image` of that name, some launch sandboxes.
    """
    client = cloud.client()
    sandbox_id = client.run_microvm(imageIdentifier=cloud.image_arn())["microvmId"]
    known = [sandbox_id, UNKNOWN_VM, image, IMAGE + "fuzzed", MANAGED, f"s3://{BUCKET}/x.zip", "fuzzed"]
    requests, seen = Fuzz(seed, known), Counter[int]()
    for number in range(count):
        method, path, body = requests.request()
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        reply = send(cloud, method, path, content, headers={"Content-Type": "application/json"})
        assert reply.status < 500, (seed, number, method, path, body, reply)
        seen[reply.status] += 1
    return seen


def test_five_hundred_requests_made_by_chance_are_all_answered(cloud: LocalCloud) -> None:
    seen = fuzz(cloud, 500, seed=1)
    assert seen[200] > 10 < seen[404], seen


@pytest.mark.soak
def test_fifty_thousand_requests_made_by_chance_are_all_answered(cloud: LocalCloud) -> None:
    seed = int(os.environ.get("SBX_TEST_SEED", "2"))
    fuzz(cloud, 50_000, seed, image=cloud.image_arn())
    assert "Traceback" not in cloud.log_text()
