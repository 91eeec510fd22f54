"""Calls that fail as on the platform, in its words."""

from __future__ import annotations

from typing import Any

from tests.localcloud.conformance.scene import CONNECTOR, IMAGE, MANAGED, UNKNOWN_VM, Refusal, image_request

BASE = IMAGE + "sbx-base-512"
NO_IMAGE = IMAGE + "none"
SLASH = "arn:aws:lambda:local-1:000000000000:microvm-image/sbx-base"
NOT_FOUND = "ResourceNotFoundException"
INVALID = "ValidationException"
DENIED = "AccessDeniedException"
PARAMETER = "InvalidParameterValueException"
VPC = {"SubnetIds": ["subnet-1"], "AssociatedComputeResourceTypes": ["MicroVm"]}
ON_IMAGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("get_microvm_image", {}),
    ("delete_microvm_image", {}),
    ("list_microvm_image_versions", {}),
    ("get_microvm_image_version", {"imageVersion": "1.0"}),
    ("delete_microvm_image_version", {"imageVersion": "1.0"}),
    ("update_microvm_image_version", {"imageVersion": "1.0", "status": "ACTIVE"}),
    ("list_microvm_image_builds", {"imageVersion": "1.0"}),
    ("get_microvm_image_build", {"imageVersion": "1.0", "buildId": "b"}),
    ("list_microvms", {}),
    ("update_microvm_image", {name: value for name, value in image_request().items() if name != "name"}),
)
ON_VMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("get_microvm", {}),
    ("suspend_microvm", {}),
    ("resume_microvm", {}),
    ("terminate_microvm", {}),
    ("create_microvm_auth_token", {"expirationInMinutes": 5, "allowedPorts": [{"port": 8080}]}),
    ("create_microvm_shell_auth_token", {"expirationInMinutes": 5}),
)
_NO_TAGS = "0.3 Tag/other ops on a missing image → 404"
_ARN = "0.3 Image ops and Run need the full image ARN, colon form"

IDENTIFIERS = [
    *(
        Refusal(_ARN, operation, {"imageIdentifier": "bare", **more}, 400, INVALID, "Invalid ARN format: bare")
        for operation, more in ON_IMAGES
    ),
    *(
        Refusal("0.3 Slash form: encoded → 403", operation, {"imageIdentifier": SLASH, **more}, 403, DENIED)
        for operation, more in ON_IMAGES
    ),
    *(
        Refusal(
            "0.3 ops on a missing image → 404",
            operation,
            {"imageIdentifier": NO_IMAGE, **more},
            404,
            NOT_FOUND,
            f"MicroVMImage not found for MicroVMImageID: {NO_IMAGE}",
        )
        for operation, more in ON_IMAGES
    ),
    *(
        Refusal("2.1 Unknown id → 404", operation, {"microvmIdentifier": UNKNOWN_VM, **more}, 404, NOT_FOUND)
        for operation, more in ON_VMS
    ),
    Refusal(_ARN, "run_microvm", {"imageIdentifier": "bare"}, 400, INVALID, "Malformed ARN - doesn't start"),
    Refusal(
        "0.3 Run on a missing image → 404",
        "run_microvm",
        {"imageIdentifier": NO_IMAGE},
        404,
        NOT_FOUND,
        f"No active version found for MicroVM image {NO_IMAGE}",
    ),
    Refusal(
        '0.3 pinned form adds " and version <v>"',
        "run_microvm",
        {"imageIdentifier": BASE, "imageVersion": "9.0"},
        404,
        NOT_FOUND,
        f"No active version found for MicroVM image {BASE} and version 9.0",
    ),
    Refusal(
        "0.3 The tag grammar admits no VM ARN",
        "list_tags",
        {"Resource": f"arn:aws:lambda:local-1:000000000000:microvm:{UNKNOWN_VM}"},
        400,
        INVALID,
        "Member must satisfy regular expression pattern",
    ),
    Refusal("0.3 … nor the bare id", "list_tags", {"Resource": UNKNOWN_VM}, 400, INVALID, "pattern"),
    Refusal(_NO_TAGS, "list_tags", {"Resource": NO_IMAGE}, 404, NOT_FOUND, "not found for"),
    Refusal(
        _NO_TAGS,
        "tag_resource",
        {"Resource": NO_IMAGE, "Tags": {"a": "b"}},
        404,
        NOT_FOUND,
    ),
    Refusal(
        _NO_TAGS,
        "untag_resource",
        {"Resource": NO_IMAGE, "TagKeys": ["a"]},
        404,
        NOT_FOUND,
    ),
    Refusal(
        "0.3 Page size 100 → 400", "list_microvms", {"maxResults": 100}, 400, INVALID, "value less than or equal to 50"
    ),
]

LAUNCHES = [
    Refusal(
        "0.1 maximumDuration 1–28800",
        "run_microvm",
        {"imageIdentifier": BASE, "maximumDurationInSeconds": 28801},
        400,
        INVALID,
        "less than or equal to 28800",
    ),
    Refusal(
        "6 Logging with no role → 400",
        "run_microvm",
        {"imageIdentifier": BASE, "logging": {"cloudWatch": {}}},
        400,
        INVALID,
        "Logging cannot be enabled without providing executionRoleArn",
    ),
    *(
        Refusal(
            "5.1 bare names → Malformed network connector ARN",
            "run_microvm",
            {"imageIdentifier": BASE, f"{way}NetworkConnectors": ["INTERNET_EGRESS"]},
            400,
            INVALID,
            "Malformed network connector ARN",
        )
        for way in ("ingress", "egress")
    ),
    *(
        Refusal(
            "5.1 NO_EGRESS → Unrecognized managed network connector ARN",
            "run_microvm",
            {"imageIdentifier": BASE, f"{way}NetworkConnectors": [CONNECTOR + name]},
            400,
            INVALID,
            "Unrecognized managed network connector ARN",
        )
        for way, name in (
            *(("egress", "NO_EGRESS"), ("egress", "HTTP_INGRESS"), ("ingress", "INTERNET_EGRESS")),
            ("ingress", "EVERY_INGRESS"),
        )
    ),
    Refusal(
        "5.1 One egress connector",
        "run_microvm",
        {"imageIdentifier": BASE, "egressNetworkConnectors": [CONNECTOR + "INTERNET_EGRESS"] * 2},
        400,
        INVALID,
    ),
    Refusal(
        "5.2 connectors are the account's own",
        "run_microvm",
        {"imageIdentifier": BASE, "egressNetworkConnectors": [CONNECTOR.replace(":aws:", ":000000000000:") + "x"]},
        400,
        INVALID,
        "does not exist",
    ),
]

IMAGES = [
    *(
        Refusal(
            "3.1 ECR URIs are refused",
            "create_microvm_image",
            image_request(codeArtifact={"uri": uri}),
            400,
            INVALID,
            "CodeArtifact URI must be a valid S3 URI in the format: s3://<bucket>/<key>",
        )
        for uri in (
            "123456789012.dkr.ecr.us-east-1.amazonaws.com/a:b",
            "https://b.s3.amazonaws.com/k",
            "s3://b",
            "s3://",
        )
    ),
    *(
        Refusal(
            "3.1 No managed MicroVM Image with arn <arn> and version 999 is available",
            "create_microvm_image",
            image_request(**changes),
            400,
            INVALID,
            "No managed MicroVM Image with arn ",
        )
        for changes in ({"baseImageVersion": "999"}, {"baseImageArn": MANAGED + "x"}, {"baseImageArn": BASE})
    ),
    Refusal(_ARN, "create_microvm_image", image_request(baseImageArn="al2023-1"), 400, INVALID, "Invalid ARN format"),
    *(
        Refusal(
            "3.1 minimumMemoryInMiB ∈ 512, 1024, 2048, 4096, 8192",
            "create_microvm_image",
            image_request(resources=[{"minimumMemoryInMiB": size}]),
            400,
            INVALID,
            f"The requested memory size of {size} MiB is not supported by base MicroVM image {MANAGED}. "
            "Supported memory sizes in MiB are: [512, 1024, 2048, 4096, 8192].",
        )
        for size in (0, 1, 256, 513, 3072, 16384)
    ),
    *(
        Refusal(
            "3.3 A runtime hook enabled without ready → 400",
            "create_microvm_image",
            image_request(hooks={"port": 9000, "microvmHooks": {hook: "ENABLED"}}),
            400,
            INVALID,
            "The ready (/ready) MicroVM image hook must be enabled when any MicroVM lifecycle hook",
        )
        for hook in ("run", "resume", "suspend", "terminate")
    ),
    *(
        Refusal(
            "9.10 Hooks need ready too, and an explicit port",
            "create_microvm_image",
            image_request(hooks={"microvmImageHooks": {hook: "ENABLED"}}),
            400,
            INVALID,
            "port",
        )
        for hook in ("ready", "validate")
    ),
    Refusal(
        "3.3 AWS_REGION is a reserved env key",
        "create_microvm_image",
        image_request(environmentVariables={"AWS_REGION": "x"}),
        400,
        INVALID,
        "AWS_REGION",
    ),
    Refusal(
        "3.3 Existing name → 400, not 409",
        "create_microvm_image",
        image_request(name="sbx-base"),
        400,
        INVALID,
        "A MicroVM image with the name 'sbx-base' already exists in this account",
    ),
]

TOKENS = [
    Refusal(
        "1.2 TTL 1–60 min",
        "create_microvm_auth_token",
        {"microvmIdentifier": "{vm}", "expirationInMinutes": 61, "allowedPorts": [{"port": 1}]},
        400,
        INVALID,
        "ExpirationMinutes 61 exceeded max allowed of 60.",
    ),
    Refusal(
        "1.2 TTL 1–60 min",
        "create_microvm_shell_auth_token",
        {"microvmIdentifier": "{vm}", "expirationInMinutes": 61},
        400,
        INVALID,
        "ExpirationMinutes 61 exceeded max allowed of 60.",
    ),
    Refusal(
        "5.1 Shell needs SHELL_INGRESS",
        "create_microvm_shell_auth_token",
        {"microvmIdentifier": "{vm}", "expirationInMinutes": 5},
        400,
        INVALID,
        "Shell access requires SHELL_INGRESS network connector to be configured on the MicroVM.",
    ),
]

CONNECTORS = [
    Refusal(
        "5.2 OperatorRole is needed",
        "create_network_connector",
        {"Name": "n", "Configuration": {"VpcEgressConfiguration": VPC}},
        400,
        PARAMETER,
        "NetworkConnectorOperatorRole is required for VPC_EGRESS connector type",
    ),
    *(
        Refusal("5.2 unknown connector", operation, {"Identifier": "nc-none"}, 404, NOT_FOUND, "nc-none")
        for operation in (
            *("get_network_connector", "delete_network_connector", "update_network_connector"),
            "list_network_connector_versions",
        )
    ),
    Refusal(
        "5.2 MaxItems ≤100", "list_network_connectors", {"MaxItems": 101}, 400, PARAMETER, "less than or equal to 100"
    ),
    Refusal("5.2 paging Marker", "list_network_connectors", {"Marker": "x"}, 400, PARAMETER, "Invalid Marker"),
]

REFUSALS = [*IDENTIFIERS, *LAUNCHES, *IMAGES, *TOKENS, *CONNECTORS]
