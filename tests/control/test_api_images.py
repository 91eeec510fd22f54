"""Images and their versions, over real HTTP with the real client."""

from __future__ import annotations

from typing import Any

import pytest

from sbxtui.core.errors import UsageError
from sbxtui.core.model import (
    LaunchRequest,
)
from tests.control.planes import ARN, plane_at
from tests.support.aws_server import Reply, aws_server


async def test_images_are_listed_with_their_newest_active_version() -> None:
    item = {
        "imageArn": ARN,
        "name": "sbx-base",
        "state": "UPDATED",
        "latestActiveImageVersion": "3.0",
        "createdAt": 1_767_225_600,
    }
    with aws_server(Reply(200, {"items": [item]})) as server:
        (image,) = await plane_at(server).images("base")
    assert server.asked[0].query["nameFilter"] == ["base"]
    assert (image.arn, image.name, image.state, image.latest_version) == (ARN, "sbx-base", "UPDATED", "3.0")


async def test_managed_images_take_their_name_from_the_arn() -> None:
    arn = "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1"
    with aws_server(Reply(200, {"items": [{"imageArn": arn, "createdAt": 1_767_225_600}]})) as server:
        (image,) = await plane_at(server).managed_images()
    assert server.asked[0].path == "/2025-09-09/managed-microvm-images"
    assert (image.name, image.is_managed) == ("al2023-1", True)


async def test_an_image_arn_travels_percent_encoded() -> None:
    answer = {"imageArn": ARN, "name": "sbx-base", "state": "CREATED", "createdAt": 1_767_225_600}
    with aws_server(Reply(200, answer)) as server:
        await plane_at(server).image(ARN)
    assert server.asked[0].path == "/2025-09-09/microvm-images/" + ARN.replace(":", "%3A")


def _version(**members: Any) -> dict[str, Any]:
    return {
        "imageArn": ARN,
        "imageVersion": "3.0",
        "state": "SUCCESSFUL",
        "status": "ACTIVE",
        "createdAt": 1_767_225_600,
        "baseImageArn": "b",
        "buildRoleArn": "arn:aws:iam::123456789012:role/x",
        "codeArtifact": {"uri": "s3://b/k"},
        "resources": [{"minimumMemoryInMiB": 4_096}],
        "hooks": {
            "port": 9_000,
            "microvmHooks": {"run": "ENABLED", "runTimeoutInSeconds": 10, "resume": "DISABLED"},
            "microvmImageHooks": {"ready": "ENABLED"},
        },
        **members,
    }


async def test_an_image_version_tells_its_size_and_hooks() -> None:
    with aws_server(Reply(200, _version())) as server:
        version = await plane_at(server).image_version(ARN, "3.0")
    assert (version.memory_mib, version.hooks) == (4_096, ("ready", "run"))
    assert (version.version, version.state, version.status) == ("3.0", "SUCCESSFUL", "ACTIVE")


async def test_all_versions_of_an_image_are_listed() -> None:
    with aws_server(
        Reply(200, {"items": [_version()], "nextToken": "n"}), Reply(200, {"items": [_version(imageVersion="2.0")]})
    ) as server:
        versions = await plane_at(server).image_versions(ARN)
    assert [version.version for version in versions] == ["3.0", "2.0"]


async def test_versions_of_a_managed_image_come_from_the_managed_list() -> None:
    arn = "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1"
    item = {"imageArn": arn, "imageVersion": "1", "status": "AVAILABLE", "createdAt": 1_767_225_600}
    with aws_server(Reply(200, {"items": [item]})) as server:
        (version,) = await plane_at(server).image_versions(arn)
    assert server.asked[0].path.startswith("/2025-09-09/managed-microvm-images/")
    assert (version.state, version.status) == ("SUCCESSFUL", "ACTIVE")


@pytest.mark.parametrize(
    ("arn", "says"),
    [
        ("sbx-base", "REGION"),
        ("", "REGION"),
        ("arn:aws:iam::123456789012:role/x", "REGION"),
        (ARN.replace("microvm-image:", "microvm-image/"), ARN),
    ],
)
async def test_what_is_no_image_arn_is_refused_with_the_right_form(arn: str, says: str) -> None:
    with aws_server(Reply()) as server:
        plane = plane_at(server)
        for call in (plane.run(LaunchRequest(arn), client_token="t"), plane.image(arn), plane.image_versions(arn)):
            with pytest.raises(UsageError) as caught:
                await call
            assert says in caught.value.hint
    assert server.asked == []
