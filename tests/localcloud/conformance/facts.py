"""What holds when calls succeed: images, connectors, tags, tokens, pages, and the objects that builds are made of."""

from __future__ import annotations

import functools
import json
import re
from datetime import UTC, datetime

from botocore.exceptions import ClientError

from sbxtui.localcloud.model import MICROVMS, service_model
from tests.localcloud.conformance.refusals import BASE, VPC
from tests.localcloud.conformance.scene import BUCKET, CONNECTOR, IMAGE, MANAGED, ROLE, Scene, fact, image_request
from tests.localcloud.conformance.shapes import whole_request

HOOKS = {"port": 9000, "microvmImageHooks": {"ready": "ENABLED"}, "microvmHooks": {"run": "ENABLED"}}


@fact("0.1 24 operations, rest-json")
def every_operation_of_the_model_is_done(scene: Scene) -> None:
    names = service_model().operation_names
    assert len(names) == 24
    for name in names:
        asked = whole_request(MICROVMS, name)
        reply = scene.raw(asked.method, asked.target, asked.body)
        assert reply.code not in ("UnsupportedOperationException", "UnknownOperationException"), name
        assert reply.status < 500, (name, reply)


@fact("0.3 a raw unencoded `=` gives 400 with null message")
def a_raw_equals_sign_in_a_token_is_refused_without_a_message(scene: Scene) -> None:
    reply = scene.raw("GET", "/2025-09-09/microvms?nextToken=abc=")
    assert (reply.status, json.loads(reply.body)["message"]) == (400, None)


@fact("0.1 list has nameFilter; 0.3 nameFilter is a substring match and maxResults is applied before it")
def a_filtered_page_may_be_empty_and_have_a_next_one(scene: Scene) -> None:
    page = scene.call("list_microvm_images", nameFilter="8192", maxResults=1)
    assert (page["items"], "nextToken" in page) == ([], True)


@fact("3.1 Managed base al2023-1, the only one listed; versions 1 and 0, newest first")
def the_managed_base_is_listed_with_two_versions(scene: Scene) -> None:
    (image,) = scene.call("list_managed_microvm_images")["items"]
    assert image["imageArn"] == MANAGED
    versions = scene.call("list_managed_microvm_image_versions", imageIdentifier=MANAGED)["items"]
    assert [(one["imageVersion"], one["status"]) for one in versions] == [("1", "AVAILABLE"), ("0", "AVAILABLE")]


@fact("0.1 CreateMicrovmImage POST 201; 3.2 Failure reason lives on the BUILD summary")
def a_build_without_its_archive_fails_and_says_so_on_its_build(scene: Scene) -> None:
    name, arn = "no-archive", IMAGE + "no-archive"
    made = scene.call("create_microvm_image", **image_request(name=name, baseImageVersion="1"))
    assert (made["ResponseMetadata"]["HTTPStatusCode"], made["state"], made["imageVersion"]) == (201, "CREATING", "1.0")
    assert made["baseImageVersion"] == "1.0", "sent as 1, read back as 1.0 (9.44)"
    scene.until(lambda: scene.image_state(name), "CREATE_FAILED")
    image = scene.call("get_microvm_image", imageIdentifier=arn)
    assert (image.get("latestActiveImageVersion"), image["latestFailedImageVersion"]) == (None, "1.0")
    version = scene.call("get_microvm_image_version", imageIdentifier=arn, imageVersion="1.0")
    assert (version["state"], version["status"], "stateReason" in version) == ("FAILED", "INACTIVE", False)
    builds = scene.call("list_microvm_image_builds", imageIdentifier=arn, imageVersion="1.0")["items"]
    assert [(one["buildState"], one["stateReason"]) for one in builds] == [("FAILED", "S3_NO_SUCH_KEY")] * 2
    assert {one["chipsetGeneration"] for one in builds} == {"3", "4"}, "one build per CPU generation (3.2)"
    detail = scene.call(
        "get_microvm_image_build", imageIdentifier=arn, imageVersion="1.0", buildId=builds[0]["buildId"]
    )
    assert "snapshotBuild" not in detail
    assert scene.refusal("run_microvm", imageIdentifier=arn)[:2] == (404, "ResourceNotFoundException")


@fact("3.2 Documented codes: S3_NO_SUCH_BUCKET, ARCHIVE_INVALID, ARCHIVE_DOCKERFILE_NOT_FOUND, CONTAINER_BUILD_FAILED")
def each_way_to_fail_has_its_reason(scene: Scene) -> None:
    scene.client("s3").put_object(Bucket=BUCKET, Key="no-zip", Body=b"no zip")
    wanted = {
        "s3://no-such-bucket/a.zip": "S3_NO_SUCH_BUCKET",
        f"s3://{BUCKET}/no-zip": "ARCHIVE_INVALID",
        scene.upload("empty.zip", {"readme": "x"}): "ARCHIVE_DOCKERFILE_NOT_FOUND",
        scene.upload(
            "stages.zip", {"Dockerfile": "FROM sbx-base\nHEALTHCHECK NONE\n"}
        ): "The container image build failed",
    }
    names = [f"fails-{number}" for number in range(len(wanted))]
    for name, uri in zip(names, wanted, strict=True):
        scene.call("create_microvm_image", **image_request(name=name, codeArtifact={"uri": uri}))
    for name, reason in zip(names, wanted.values(), strict=True):
        scene.until(functools.partial(scene.image_state, name), "CREATE_FAILED")
        builds = scene.call("list_microvm_image_builds", imageIdentifier=IMAGE + name, imageVersion="1.0")["items"]
        assert builds[0]["stateReason"].startswith(reason), name


@fact("3.2 UpdateMicrovmImage replaces everything; Failed builds leave a version behind (3.3)")
def an_update_takes_nothing_from_the_version_before(scene: Scene) -> None:
    arn = IMAGE + "updated"
    first = image_request(name="updated", description="d", environmentVariables={"A": "1"}, hooks=HOOKS)
    scene.call("create_microvm_image", **first)
    scene.until(lambda: scene.image_state("updated"), "CREATE_FAILED")
    again = {name: value for name, value in image_request().items() if name != "name"}
    changed = scene.call("update_microvm_image", imageIdentifier=arn, **again)
    assert (changed["state"], changed["imageVersion"]) == ("UPDATING", "2.0")
    assert not {"hooks", "environmentVariables", "description"} & changed.keys()
    scene.until(lambda: scene.image_state("updated"), "UPDATE_FAILED")
    versions = scene.call("list_microvm_image_versions", imageIdentifier=arn)["items"]
    assert [one["imageVersion"] for one in versions] == ["1.0", "2.0"]
    assert versions[0]["hooks"] == HOOKS


@fact('3.3 Last version delete → "This is the last version. Please delete the entire image"')
def the_last_version_goes_with_its_image_only(scene: Scene) -> None:
    arn = IMAGE + "updated"
    scene.call("delete_microvm_image_version", imageIdentifier=arn, imageVersion="1.0")
    seen = scene.call("get_microvm_image_version", imageIdentifier=arn, imageVersion="1.0")
    assert seen["state"] == "DELETING"
    refused = scene.refusal("delete_microvm_image_version", imageIdentifier=arn, imageVersion="2.0")
    assert refused[2] == "This is the last version. Please delete the entire image"


@fact("3.3 image delete: the name stays taken meanwhile; 0.1 delete answers imageIdentifier+state")
def a_deleted_images_name_stays_taken_for_a_while(scene: Scene) -> None:
    arn = IMAGE + "updated"
    gone = scene.call("delete_microvm_image", imageIdentifier=arn)
    assert (gone["imageIdentifier"], gone["state"]) == (arn, "DELETING")
    assert "already exists" in scene.refusal("create_microvm_image", **image_request(name="updated"))[2]


@fact("2.6 same token + same parameters returns the same; different parameters → Conflict")
def a_client_token_makes_one_image_of_two_requests(scene: Scene) -> None:
    asked = image_request(name="twice", clientToken="t")
    made = scene.call("create_microvm_image", **asked)
    assert scene.call("create_microvm_image", **asked)["createdAt"] == made["createdAt"]
    refused = scene.refusal("create_microvm_image", **{**asked, "description": "other"})
    assert refused[:2] == (409, "ConflictException")


@fact("2.6 Run: same token + same parameters returns the same VM; different parameters → Conflict")
def a_client_token_makes_one_sandbox_of_two_requests(scene: Scene) -> None:
    first = scene.run(clientToken="vm")
    assert scene.run(clientToken="vm") == first
    assert scene.refusal("run_microvm", imageIdentifier=BASE, clientToken="vm", runHookPayload="x")[0] == 409
    scene.call("terminate_microvm", microvmIdentifier=first)


@fact("0.1 ListTags 200 / TagResource 204 / UntagResource 204, capital-letter members, repeated query tagKeys")
def images_and_connectors_have_tags(scene: Scene) -> None:
    scene.call("create_microvm_image", **image_request(name="tagged", tags={"a": "1"}))
    connector = scene.call("create_network_connector", **connector_request("tagged", Tags={"a": "1"}))
    for arn in (IMAGE + "tagged", connector["Arn"]):
        tagged = scene.call("tag_resource", Resource=arn, Tags={"b": "2", "c d": ""})
        assert tagged["ResponseMetadata"]["HTTPStatusCode"] == 204
        assert scene.call("list_tags", Resource=arn)["Tags"] == {"a": "1", "b": "2", "c d": ""}
        scene.call("untag_resource", Resource=arn, TagKeys=["a", "c d"])
        assert scene.call("list_tags", Resource=arn)["Tags"] == {"b": "2"}
    assert scene.call("get_microvm_image", imageIdentifier=IMAGE + "tagged")["tags"] == {"b": "2"}


def connector_request(name: str, **changes: object) -> dict[str, object]:
    """A whole request for a connector."""
    return {"Name": name, "Configuration": {"VpcEgressConfiguration": VPC}, "OperatorRole": ROLE, **changes}


@fact("5.2 Create 202, State PENDING … ACTIVE; Id nc-<uuid>; versioned ARN ends :n")
def a_connector_is_made_changed_and_gone(scene: Scene) -> None:
    made = scene.call("create_network_connector", **connector_request("life", ClientToken="c"))
    assert (made["ResponseMetadata"]["HTTPStatusCode"], made["State"], made["Version"]) == (202, "PENDING", 1)
    assert re.fullmatch(r"nc-[0-9a-f-]{36}", made["Id"])
    assert made["VersionArn"] == made["Arn"] + ":1"
    again = scene.call("create_network_connector", **connector_request("life", ClientToken="c"))
    assert again["Id"] == made["Id"]
    assert scene.refusal("create_network_connector", **connector_request("life"))[1] == "ResourceConflictException"
    scene.until(lambda: str(scene.call("get_network_connector", Identifier="life")["State"]), "ACTIVE")
    vpc = {**VPC, "SubnetIds": ["subnet-2"]}
    changed = scene.call("update_network_connector", Identifier="life", Configuration={"VpcEgressConfiguration": vpc})
    assert (changed["LastUpdateStatus"], changed["Version"]) == ("InProgress", 2)
    for spelling in (made["Id"], made["Arn"], made["VersionArn"], "life"):
        assert scene.call("get_network_connector", Identifier=spelling)["Id"] == made["Id"]
    versions = scene.call("list_network_connector_versions", Identifier="life")["NetworkConnectorVersions"]
    assert [one["Version"] for one in versions] == [1, 2]
    scene.until(lambda: str(scene.call("get_network_connector", Identifier="life")["LastUpdateStatus"]), "Successful")
    assert scene.call("delete_network_connector", Identifier="life")["State"] == "DELETING"


@fact("5.2 FAILED; reason codes")
def a_connector_can_fail_for_each_reason(scene: Scene) -> None:
    vpc = {**VPC, "SubnetIds": ["subnet-invalidsubnet"]}
    scene.call("create_network_connector", **connector_request("bad", Configuration={"VpcEgressConfiguration": vpc}))
    scene.until(lambda: str(scene.call("get_network_connector", Identifier="bad")["State"]), "FAILED")
    seen = scene.call("get_network_connector", Identifier="bad")
    assert (seen["StateReasonCode"], seen["LastUpdateStatus"]) == ("InvalidSubnet", "Failed")
    refused = scene.refusal("run_microvm", imageIdentifier=BASE, egressNetworkConnectors=[seen["Arn"]])
    assert "must be ACTIVE" in refused[2]


@fact("5.2 paging Marker/NextMarker/MaxItems; list filter State")
def connectors_are_listed_in_pages_and_by_state(scene: Scene) -> None:
    names: list[str] = []
    marker: dict[str, str] = {}
    while True:
        page = scene.call("list_network_connectors", MaxItems=1, **marker)
        names += [one["Name"] for one in page["NetworkConnectors"]]
        if "NextMarker" not in page:
            break
        marker = {"Marker": page["NextMarker"]}
    assert {"bad", "tagged"} <= set(names)
    failed = scene.call("list_network_connectors", State="FAILED")["NetworkConnectors"]
    assert [one["Name"] for one in failed] == ["bad"]


@fact("5.2 a VPC connector without routes is how egress is denied (5.1)")
def a_sandbox_is_launched_with_a_connector_of_the_account(scene: Scene) -> None:
    arn = scene.call("get_network_connector", Identifier="tagged")["Arn"]
    scene.until(lambda: str(scene.call("get_network_connector", Identifier="tagged")["State"]), "ACTIVE")
    sandbox_id = scene.run(egressNetworkConnectors=[arn])
    assert scene.call("get_microvm", microvmIdentifier=sandbox_id)["egressNetworkConnectors"] == [arn]
    assert "in use" in scene.refusal("delete_network_connector", Identifier="tagged")[2]
    scene.call("terminate_microvm", microvmIdentifier=sandbox_id)


@fact("5.1 INTERNET_EGRESS; without it a local sandbox reaches nothing, as one with a VPC connector without routes")
def the_internet_is_reached_with_its_connector_only(scene: Scene) -> None:
    for egress, network in (([CONNECTOR + "INTERNET_EGRESS"], "internet"), ([], "")):
        sandbox_id = scene.run(egressNetworkConnectors=egress)
        # What its way out obeys, where it has a network of its own.
        policy = scene.cloud.home / "local" / "network" / sandbox_id
        assert (policy.read_text().strip() if policy.exists() else "") == network
        assert scene.call("get_microvm", microvmIdentifier=sandbox_id).get("egressNetworkConnectors", []) == egress
        scene.call("terminate_microvm", microvmIdentifier=sandbox_id)


@fact("0.2 Credentials of any served region; an ARN is of the region that is asked")
def a_client_of_awss_regions_is_answered_in_its_own(scene: Scene) -> None:
    told = scene.cloud.told()
    client = scene.cloud.client(region_name="us-east-1")
    arn = f"arn:aws:lambda:us-east-1:{told['account_id']}:microvm-image:sbx-base-512"
    made = client.run_microvm(imageIdentifier=arn)
    assert made["imageArn"] == arn
    listed = client.list_microvms(imageIdentifier=arn)["items"]
    assert {one["imageArn"] for one in listed} == {arn}
    missing = arn.replace("sbx-base-512", "none")
    try:
        client.get_microvm_image(imageIdentifier=missing)
    except ClientError as exc:
        assert missing in exc.response["Error"]["Message"]
    else:
        raise AssertionError(f"{missing} is there")
    client.terminate_microvm(microvmIdentifier=made["microvmId"])


@fact("5.1 ALL+SHELL launches and bills, then mint 400; Shell needs HTTP_INGRESS + SHELL_INGRESS")
def only_http_with_shell_gives_a_shell(scene: Scene) -> None:
    def launch(*names: str) -> str:
        return scene.run(ingressNetworkConnectors=[CONNECTOR + name for name in names])

    both = launch("ALL_INGRESS", "SHELL_INGRESS")
    refused = scene.refusal("create_microvm_shell_auth_token", microvmIdentifier=both, expirationInMinutes=5)
    assert refused[2].startswith("ALL_INGRESS cannot be combined with other ingress network connectors")
    shell = launch("HTTP_INGRESS", "SHELL_INGRESS")
    minted = scene.call("create_microvm_shell_auth_token", microvmIdentifier=shell, expirationInMinutes=5)
    assert list(minted["authToken"]) == ["X-aws-proxy-auth"]
    for sandbox_id in (both, shell):
        scene.call("terminate_microvm", microvmIdentifier=sandbox_id)


@fact("2.1 Terminate of TERMINATED is fine; 9.25 TERMINATED stays in ListMicrovms; 2.4 `Success.`")
def what_has_ended_stays_readable(scene: Scene) -> None:
    sandbox_id = scene.run()
    scene.call("terminate_microvm", microvmIdentifier=sandbox_id)
    scene.until(lambda: scene.vm_state(sandbox_id), "TERMINATED")
    scene.call("terminate_microvm", microvmIdentifier=sandbox_id)
    seen = scene.call("get_microvm", microvmIdentifier=sandbox_id)
    assert (seen["stateReason"], seen["terminatedAt"] <= datetime.now(UTC)) == ("Success.", True)
    listed = [one["microvmId"] for one in scene.call("list_microvms")["items"]]
    assert sandbox_id in listed
    for operation in ("suspend_microvm", "resume_microvm"):
        assert scene.refusal(operation, microvmIdentifier=sandbox_id)[:2] == (409, "ConflictException")


@fact("3.1 Zip in same-region S3: create, put, get, head, delete, path style, checksums")
def objects_are_put_and_got_whole_and_in_parts(scene: Scene) -> None:
    s3 = scene.client("s3")
    put = s3.put_object(Bucket=BUCKET, Key="a b/ü.txt", Body=b"hello", ContentType="text/x", Metadata={"k": "v"})
    seen = s3.get_object(Bucket=BUCKET, Key="a b/ü.txt")
    assert (seen["Body"].read(), seen["ContentType"], seen["Metadata"]) == (b"hello", "text/x", {"k": "v"})
    assert seen["ETag"] == put["ETag"]
    assert s3.get_object(Bucket=BUCKET, Key="a b/ü.txt", Range="bytes=1-2")["Body"].read() == b"el"
    assert s3.head_object(Bucket=BUCKET, Key="a b/ü.txt")["ContentLength"] == 5
    assert "a b/ü.txt" in [one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET)["Contents"]]
    parts = s3.create_multipart_upload(Bucket=BUCKET, Key="parts")["UploadId"]
    for number in (1, 2):
        s3.upload_part(Bucket=BUCKET, Key="parts", UploadId=parts, PartNumber=number, Body=f"part{number}".encode())
    numbers = {"Parts": [{"PartNumber": number, "ETag": "e"} for number in (1, 2)]}
    s3.complete_multipart_upload(Bucket=BUCKET, Key="parts", UploadId=parts, MultipartUpload=numbers)
    assert s3.get_object(Bucket=BUCKET, Key="parts")["Body"].read() == b"part1part2"
    s3.delete_object(Bucket=BUCKET, Key="parts")
    for key, code in (("parts", "NoSuchKey"), ("none", "NoSuchKey")):
        try:
            s3.get_object(Bucket=BUCKET, Key=key)
        except ClientError as exc:
            assert exc.response["Error"]["Code"] == code
        else:
            raise AssertionError(f"{key} is there")
