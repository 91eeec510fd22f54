"""The API as real boto3 meets it: shapes in and out, errors with the service's codes and words, paging, the catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sbxtui.localcloud import faults
from sbxtui.localcloud.model import service_model
from sbxtui.localcloud.shapes import violations
from tests.localcloud.signed import send
from tests.support.local_cloud import LocalCloud, local_cloud

IMAGES = "/2025-09-09/microvm-images"
VMS = "/2025-09-09/microvms"
UNKNOWN = "microvm-00000000-0000-0000-0000-000000000000"
CONNECTOR = "arn:aws:lambda:local-1:aws:network-connector:aws-network-connector:"


@pytest.fixture(scope="module")
def client(cloud: LocalCloud) -> Any:
    return cloud.client()


@pytest.fixture
def sandbox_id(client: Any, cloud: LocalCloud) -> Iterator[str]:
    found = client.run_microvm(imageIdentifier=cloud.image_arn())["microvmId"]
    yield found
    client.terminate_microvm(microvmIdentifier=found)


def post(cloud: LocalCloud, path: str, body: Any) -> tuple[int, str, str]:
    """Status, code and message of a signed POST whose body no client would send."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = send(cloud, "POST", path, raw, headers={"Content-Type": "application/json"})
    return reply.status, reply.code, json.loads(reply.body).get("message", "")


ERROR = "1 validation error detected: Value at '{}' failed to satisfy constraint: Member must {}"


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("runHookPayload", "x" * 4097, ERROR.format("runHookPayload", "have length less than or equal to 4096")),
        ("clientToken", "x" * 129, ERROR.format("clientToken", "have length less than or equal to 128")),
        ("clientToken", "", ERROR.format("clientToken", "have length greater than or equal to 1")),
        (
            "maximumDurationInSeconds",
            28801,
            ERROR.format("maximumDurationInSeconds", "have value less than or equal to 28800"),
        ),
        (
            "maximumDurationInSeconds",
            0,
            ERROR.format("maximumDurationInSeconds", "have value greater than or equal to 1"),
        ),
        ("imageVersion", "1 0", ERROR.format("imageVersion", r"satisfy regular expression pattern: [^\s]+")),
        (
            "egressNetworkConnectors",
            ["c"] * 11,
            ERROR.format("egressNetworkConnectors", "have length less than or equal to 10"),
        ),
        (
            "ingressNetworkConnectors",
            [""],
            ERROR.format("ingressNetworkConnectors.1.member", "have length greater than or equal to 1"),
        ),
        (
            "idlePolicy",
            {"maxIdleDurationSeconds": 59, "suspendedDurationSeconds": 0, "autoResumeEnabled": True},
            ERROR.format("idlePolicy.maxIdleDurationSeconds", "have value greater than or equal to 60"),
        ),
        (
            "idlePolicy",
            {"maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 0},
            ERROR.format("idlePolicy.autoResumeEnabled", "not be null"),
        ),
        (
            "logging",
            {"cloudWatch": {"logGroup": "a b"}},
            ERROR.format("logging.cloudWatch.logGroup", r"satisfy regular expression pattern: [a-zA-Z0-9_\-/.#]+"),
        ),
        (
            "logging",
            {"cloudWatch": {}, "disabled": {}},
            ERROR.format("logging", "have exactly one of [disabled, cloudWatch] set"),
        ),
    ],
)
def test_a_member_outside_its_limits_is_refused_in_the_services_words(
    cloud: LocalCloud, member: str, value: Any, message: str
) -> None:
    body = {"imageIdentifier": cloud.image_arn(), member: value}
    assert post(cloud, VMS, body) == (400, "ValidationException", message)


def test_all_violations_are_listed_at_once(cloud: LocalCloud) -> None:
    status, code, message = post(cloud, VMS, {"clientToken": "", "maximumDurationInSeconds": 0})
    assert (status, code) == (400, "ValidationException")
    assert message.startswith("3 validation errors detected: Value at 'imageIdentifier'")
    assert message.count("; Value at") == 2


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"x"',
        b"\xff",
        b'{"imageIdentifier": 5}',
        b'{"imageIdentifier": "a", "maximumDurationInSeconds": "5"}',
        b'{"imageIdentifier": "a", "maximumDurationInSeconds": 1.5}',
        b'{"imageIdentifier": "a", "maximumDurationInSeconds": true}',
        b'{"imageIdentifier": "a", "maximumDurationInSeconds": NaN}',
        b'{"imageIdentifier": "a", "idlePolicy": []}',
        b'{"imageIdentifier": "a", "egressNetworkConnectors": "x"}',
        b"[" * 100_000,
    ],
)
def test_a_body_of_the_wrong_type_is_refused(cloud: LocalCloud, body: bytes) -> None:
    assert post(cloud, VMS, body)[:2] == (400, "SerializationException")


def test_unknown_members_are_ignored_as_on_aws(cloud: LocalCloud) -> None:
    body = {"imageIdentifier": "x", "aMemberOfTheFuture": 1}
    assert post(cloud, VMS, body) == (400, "ValidationException", "Malformed ARN - doesn't start with 'arn:'")


def test_a_body_too_large_is_refused(cloud: LocalCloud) -> None:
    assert post(cloud, VMS, b" " * (2 << 20))[0] == 413


NO_VERSION = "No active version found for MicroVM image "


@pytest.mark.parametrize(
    ("params", "status", "code", "message"),
    [
        ({"imageIdentifier": "sbx-base"}, 400, "ValidationException", "Malformed ARN - doesn't start with 'arn:'"),
        (
            {"imageIdentifier": "arn:aws:lambda:local-1:000000000000:microvm-image:none"},
            404,
            "ResourceNotFoundException",
            NO_VERSION,
        ),
        ({"imageVersion": "2.0"}, 404, "ResourceNotFoundException", " and version 2.0"),
        (
            {"logging": {"cloudWatch": {}}},
            400,
            "ValidationException",
            "Logging cannot be enabled without providing executionRoleArn",
        ),
        ({"kmsKeyIdentifier": "alias/k"}, 400, "ValidationException", "KMS"),
        ({"ingressNetworkConnectors": ["HTTP_INGRESS"]}, 400, "ValidationException", "Malformed network connector ARN"),
        (
            {"ingressNetworkConnectors": [CONNECTOR + "NO_EGRESS"]},
            400,
            "ValidationException",
            "Unrecognized managed network connector ARN",
        ),
        (
            {"egressNetworkConnectors": [CONNECTOR + "NO_EGRESS"]},
            400,
            "ValidationException",
            "Unrecognized managed network connector ARN",
        ),
        (
            {"egressNetworkConnectors": [CONNECTOR + "INTERNET_EGRESS"] * 2},
            400,
            "ValidationException",
            "At most one egress network connector",
        ),
        ({"executionRoleArn": "arn:aws:iam::1:role/too-short-an-account"}, 400, "ValidationException", "pattern"),
    ],
)
def test_a_launch_that_cannot_be_is_refused(
    client: Any, cloud: LocalCloud, params: dict[str, Any], status: int, code: str, message: str
) -> None:
    with pytest.raises(ClientError) as refused:
        client.run_microvm(**{"imageIdentifier": cloud.image_arn(), **params})
    error = refused.value.response
    assert (error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Code"]) == (status, code)
    assert message in error["Error"]["Message"]


def test_shape_is_checked_before_the_arn_and_the_arn_before_the_image(client: Any, cloud: LocalCloud) -> None:
    assert "imageVersion" in post(cloud, VMS, {"imageIdentifier": "bare", "imageVersion": " "})[2]
    assert "Malformed ARN" in post(cloud, VMS, {"imageIdentifier": "bare", "imageVersion": "9"})[2]


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("get_microvm", {}),
        ("suspend_microvm", {}),
        ("resume_microvm", {}),
        ("terminate_microvm", {}),
        ("create_microvm_auth_token", {"expirationInMinutes": 5, "allowedPorts": [{"port": 8080}]}),
    ],
)
def test_an_unknown_sandbox_is_not_found(client: Any, operation: str, params: dict[str, Any]) -> None:
    with pytest.raises(client.exceptions.ResourceNotFoundException) as missing:
        getattr(client, operation)(microvmIdentifier=UNKNOWN, **params)
    assert missing.value.response["resourceId"] == UNKNOWN
    assert missing.value.response["resourceType"] == "MicroVM"


@pytest.mark.parametrize("identifier", ["..", "%2e%2e", "a/b", "x" * 256, "ü", "a b", "%00"])
def test_hostile_identifiers_are_only_not_found(client: Any, identifier: str) -> None:
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.get_microvm(microvmIdentifier=identifier)


def test_an_identifier_that_is_too_long_is_refused(client: Any) -> None:
    with pytest.raises(client.exceptions.ValidationException, match="less than or equal to 256"):
        client.get_microvm(microvmIdentifier="x" * 257)


def test_a_raw_slash_arn_is_no_route(cloud: LocalCloud) -> None:
    assert send(cloud, "GET", f"{IMAGES}/arn:aws:lambda:local-1:0:microvm-image/sbx-base").status == 404


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", VMS), ("GET", "/2025-09-09/nothing"), ("GET", "/2020-01-01/microvms")]
)
def test_what_the_model_lacks_is_unknown(cloud: LocalCloud, method: str, path: str) -> None:
    reply = send(cloud, method, path)
    assert (reply.status, reply.code) == (404, "UnknownOperationException")


def test_a_missing_version_is_not_found(client: Any, cloud: LocalCloud) -> None:
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.get_microvm_image_version(imageIdentifier=cloud.image_arn(), imageVersion="2.0")


def test_every_answer_fits_the_models_output_shape(cloud: LocalCloud, sandbox_id: str) -> None:
    image = cloud.image_arn().replace(":", "%3A")
    (managed,) = cloud.client().list_managed_microvm_images()["items"]
    token = json.dumps({"expirationInMinutes": 5, "allowedPorts": [{"allPorts": {}}]}).encode()
    run = json.dumps(
        {
            "imageIdentifier": cloud.image_arn(),
            "idlePolicy": {"maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 5, "autoResumeEnabled": True},
            "maximumDurationInSeconds": 100,
            "executionRoleArn": "arn:aws:iam::000000000000:role/r",
        }
    ).encode()
    calls: list[tuple[str, str, str, bytes]] = [
        ("RunMicrovm", "POST", VMS, run),
        ("ListMicrovms", "GET", VMS, b""),
        ("GetMicrovm", "GET", f"{VMS}/{sandbox_id}", b""),
        ("CreateMicrovmAuthToken", "POST", f"{VMS}/{sandbox_id}/auth-token", token),
        ("TerminateMicrovm", "DELETE", f"{VMS}/{sandbox_id}", b""),
        ("GetMicrovmImage", "GET", f"{IMAGES}/{image}", b""),
        ("ListMicrovmImages", "GET", IMAGES, b""),
        ("ListMicrovmImageVersions", "GET", f"{IMAGES}/{image}/versions", b""),
        ("GetMicrovmImageVersion", "GET", f"{IMAGES}/{image}/versions/1.0", b""),
        ("ListManagedMicrovmImages", "GET", "/2025-09-09/managed-microvm-images", b""),
        (
            "ListManagedMicrovmImageVersions",
            "GET",
            f"/2025-09-09/managed-microvm-images/{managed['imageArn'].replace(':', '%3A')}/versions",
            b"",
        ),
    ]
    for operation, method, path, body in calls:
        reply = send(cloud, method, path, body)
        model = service_model().operation_model(operation)
        assert reply.status == model.http["responseCode"], (operation, reply)
        document = json.loads(reply.body)
        assert list(violations(model.output_shape, document)) == [], operation
        assert set(document) <= set(model.output_shape.members), operation


def test_a_launch_echoes_its_request_but_never_the_payload(client: Any, cloud: LocalCloud) -> None:
    idle = {"maxIdleDurationSeconds": 900, "suspendedDurationSeconds": 3600, "autoResumeEnabled": False}
    launched = client.run_microvm(
        imageIdentifier=cloud.image_arn(), idlePolicy=idle, maximumDurationInSeconds=1234, runHookPayload='{"name":"x"}'
    )
    seen = client.get_microvm(microvmIdentifier=launched["microvmId"])
    assert (seen["idlePolicy"], seen["maximumDurationInSeconds"]) == (idle, 1234)
    assert seen["endpoint"].startswith("127.0.0.1:")
    assert seen["ingressNetworkConnectors"] == [CONNECTOR + "HTTP_INGRESS"]
    assert "runHookPayload" not in seen
    (item,) = [i for i in client.list_microvms()["items"] if i["microvmId"] == launched["microvmId"]]
    assert set(item) == {"microvmId", "state", "imageArn", "imageVersion", "startedAt"}


def test_the_list_is_filtered_by_image_and_paged_newest_first(client: Any, cloud: LocalCloud) -> None:
    arn = cloud.image_arn("sbx-base-1024")
    ids = [client.run_microvm(imageIdentifier=arn)["microvmId"] for _ in range(3)]
    pages = list(client.get_paginator("list_microvms").paginate(imageIdentifier=arn, PaginationConfig={"PageSize": 1}))
    assert [item["microvmId"] for page in pages for item in page["items"]] == ids[::-1]
    assert client.list_microvms(imageIdentifier=arn, imageVersion="2.0")["items"] == []
    for sandbox_id in ids:
        client.terminate_microvm(microvmIdentifier=sandbox_id)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"expirationInMinutes": 61}, "ExpirationMinutes 61 exceeded max allowed of 60."),
        ({"allowedPorts": [{"range": {"startPort": 9, "endPort": 8}}]}, "startPort 9"),
        ({"allowedPorts": [{"port": 65536}]}, "less than or equal to 65535"),
    ],
)
def test_a_token_that_cannot_be_is_refused(client: Any, sandbox_id: str, params: dict[str, Any], message: str) -> None:
    wanted = {"expirationInMinutes": 5, "allowedPorts": [{"port": 8080}], **params}
    with pytest.raises(client.exceptions.ValidationException, match=message):
        client.create_microvm_auth_token(microvmIdentifier=sandbox_id, **wanted)


def test_a_token_looks_like_the_platforms(client: Any, sandbox_id: str) -> None:
    minted = client.create_microvm_auth_token(
        microvmIdentifier=sandbox_id, expirationInMinutes=60, allowedPorts=[{"port": 8080}, {"allPorts": {}}]
    )
    assert list(minted["authToken"]) == ["X-aws-proxy-auth"]
    parts = minted["authToken"]["X-aws-proxy-auth"].split(".")
    assert (len(parts), parts[1]) == (5, "")


def test_the_memory_quota_answers_402_with_the_services_words(tmp_path: Any) -> None:
    with local_cloud(tmp_path, "--runtime", "process", "--memory-quota-mib", "1000") as small:
        client = small.client()
        first = client.run_microvm(imageIdentifier=small.image_arn())["microvmId"]
        with pytest.raises(client.exceptions.ServiceQuotaExceededException) as refused:
            client.run_microvm(imageIdentifier=small.image_arn())
        error = refused.value.response
        assert error["ResponseMetadata"]["HTTPStatusCode"] == 402
        assert (error["quotaCode"], error["serviceCode"]) == (faults.MEMORY_QUOTA_CODE, "lambda")
        assert error["Error"]["Message"] == "The base maximum allocated memory limit has been reached for this account."
        client.terminate_microvm(microvmIdentifier=first)
        small.terminate_all()
        assert client.run_microvm(imageIdentifier=small.image_arn())["state"] == "PENDING"
