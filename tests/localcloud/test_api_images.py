"""Images, pages and their tokens as real boto3 meets them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.localcloud.signed import send
from tests.support.local_cloud import LocalCloud

VMS = "/2025-09-09/microvms"


@pytest.fixture(scope="module")
def client(cloud: LocalCloud) -> Any:
    return cloud.client()


IMAGE_OPERATIONS = [
    ("get_microvm_image", {}),
    ("get_microvm_image_version", {"imageVersion": "1.0"}),
    ("list_microvm_image_versions", {}),
    ("list_microvms", {}),
]


@pytest.mark.parametrize(("operation", "params"), IMAGE_OPERATIONS)
@pytest.mark.parametrize(
    ("identifier", "status", "message"),
    [
        ("sbx-base", 400, "Invalid ARN format: sbx-base"),
        ("arn:aws:lambda:local-1:000000000000:microvm-image/sbx-base", 403, "not authorized"),
        (
            "arn:aws:lambda:local-1:000000000000:microvm-image:none",
            404,
            "MicroVMImage not found for MicroVMImageID: arn:",
        ),
        ("arn:aws:lambda:local-1:111111111111:microvm-image:sbx-base", 404, "MicroVMImage not found"),
    ],
)
def test_image_identifiers_are_refused_as_on_aws(
    client: Any, operation: str, params: dict[str, Any], identifier: str, status: int, message: str
) -> None:
    with pytest.raises(ClientError, match=message) as refused:
        getattr(client, operation)(imageIdentifier=identifier, **params)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


@pytest.mark.parametrize("most", [0, 51, 100])
def test_page_sizes_outside_1_to_50_are_refused(cloud: LocalCloud, most: int) -> None:
    words = "less than or equal to 50" if most else "greater than or equal to 1"
    reply = send(cloud, "GET", f"{VMS}?maxResults={most}")
    assert reply.status == 400
    assert f"Value at 'maxResults' failed to satisfy constraint: Member must have value {words}" in reply.body.decode()


@pytest.mark.parametrize("query", ["maxResults=x", "maxResults=1e2", "maxResults="])
def test_a_page_size_that_is_no_number_is_refused(cloud: LocalCloud, query: str) -> None:
    assert send(cloud, "GET", f"{VMS}?{query}").code == "SerializationException"


@pytest.mark.parametrize("token", ["x", "AAAA", "a" * 800, "%FF", "%00"])
def test_a_token_that_was_not_given_out_is_refused(cloud: LocalCloud, token: str) -> None:
    assert send(cloud, "GET", f"{VMS}?nextToken={token}").code == "ValidationException"


def test_a_raw_equals_sign_in_a_token_is_refused_with_a_null_message(cloud: LocalCloud) -> None:
    reply = send(cloud, "GET", f"{VMS}?nextToken=abc=")
    assert (reply.status, json.loads(reply.body)["message"]) == (400, None)


def test_a_token_is_good_for_its_own_operation_only(client: Any) -> None:
    token = client.list_microvm_images(maxResults=1)["nextToken"]
    assert client.list_microvm_images(maxResults=1, nextToken=token)["items"]
    with pytest.raises(client.exceptions.ValidationException, match="Invalid nextToken"):
        client.list_microvms(nextToken=token)


def test_pages_hold_every_image_once(client: Any) -> None:
    pages = list(client.get_paginator("list_microvm_images").paginate(PaginationConfig={"PageSize": 2}))
    names = [item["name"] for page in pages for item in page["items"]]
    assert len(pages) == 3
    assert names == ["sbx-base", "sbx-base-1024", "sbx-base-2048", "sbx-base-4096", "sbx-base-512", "sbx-base-8192"]


def test_the_name_filter_looks_at_one_page_so_empty_pages_have_a_next_one(client: Any) -> None:
    first = client.list_microvm_images(maxResults=2, nameFilter="8192")
    assert (first["items"], "nextToken" in first) == ([], True)
    pages = client.get_paginator("list_microvm_images").paginate(nameFilter="8192", PaginationConfig={"PageSize": 2})
    assert [item["name"] for page in pages for item in page["items"]] == ["sbx-base-8192"]


@pytest.mark.parametrize(
    ("name", "memory_mib"),
    [("sbx-base", 2048), ("sbx-base-512", 512), ("sbx-base-1024", 1024), ("sbx-base-8192", 8192)],
)
def test_an_images_version_tells_its_size_and_hooks(client: Any, cloud: LocalCloud, name: str, memory_mib: int) -> None:
    version = client.get_microvm_image_version(imageIdentifier=cloud.image_arn(name), imageVersion="1.0")
    assert version["resources"] == [{"minimumMemoryInMiB": memory_mib}]
    assert (version["state"], version["status"]) == ("SUCCESSFUL", "ACTIVE")
    hooks = version["hooks"]["microvmHooks"]
    assert {hooks[name] for name in ("run", "suspend", "resume", "terminate")} == {"ENABLED"}
    assert all(1 <= hooks[f"{name}TimeoutInSeconds"] <= 60 for name in ("run", "suspend", "resume", "terminate"))


def test_managed_images_are_listed_with_their_versions(client: Any) -> None:
    (image,) = client.list_managed_microvm_images()["items"]
    versions = client.list_managed_microvm_image_versions(imageIdentifier=image["imageArn"])["items"]
    assert [(one["imageVersion"], one["status"]) for one in versions] == [("1", "AVAILABLE"), ("0", "AVAILABLE")]
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.list_managed_microvm_image_versions(imageIdentifier=image["imageArn"] + "x")
