"""CloudWatch Logs of the local cloud: real boto3, checked against the model, paged without a doubled line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sbxtui.localcloud.logsapi import read_lines
from tests.localcloud.endpoint import Endpoint
from tests.support.local_cloud import LocalCloud

GROUP = "/aws/lambda-microvms/sbx-base-512"


def test_a_sandbox_has_its_stream_and_its_output_comes_in_pages(cloud: LocalCloud, endpoint: Endpoint) -> None:
    client = cloud.client("logs")
    names = [one["logStreamName"] for one in client.describe_log_streams(logGroupName=GROUP)["logStreams"]]
    (stream,) = [name for name in names if name.endswith(endpoint.id)]
    assert stream.startswith(f"{datetime.now(UTC):%Y/}")
    whole = client.get_log_events(logGroupName=GROUP, logStreamName=stream, startFromHead=True)["events"]
    assert any("listening on port" in event["message"] for event in whole)
    paged: list[Any] = []
    token: dict[str, str] = {}
    while True:
        page = client.get_log_events(logGroupName=GROUP, logStreamName=stream, startFromHead=True, limit=1, **token)
        if page["nextForwardToken"] == token.get("nextToken"):
            break
        paged += page["events"]
        token = {"nextToken": page["nextForwardToken"]}
    assert [event["message"] for event in paged][: len(whole)] == [event["message"] for event in whole]
    last = client.get_log_events(logGroupName=GROUP, logStreamName=stream, limit=1)["events"]
    assert last[0]["timestamp"] >= whole[-1]["timestamp"]


@pytest.mark.parametrize(
    ("operation", "arguments", "code"),
    [
        ("describe_log_streams", {"logGroupName": "/aws/other"}, "ResourceNotFoundException"),
        ("get_log_events", {"logGroupName": GROUP, "logStreamName": "none"}, "ResourceNotFoundException"),
        ("get_log_events", {"logGroupName": GROUP, "logStreamName": "a:b"}, "InvalidParameterException"),
        ("describe_log_streams", {"logGroupName": GROUP, "limit": 51}, "InvalidParameterException"),
        ("describe_log_groups", {}, "UnsupportedOperationException"),
    ],
)
def test_what_cannot_be_is_refused_in_the_words_of_the_service(
    cloud: LocalCloud, endpoint: Endpoint, operation: str, arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(ClientError) as refused:
        getattr(cloud.client("logs"), operation)(**arguments)
    assert refused.value.response["Error"]["Code"] == code


def test_a_key_of_another_home_reads_nothing(cloud: LocalCloud) -> None:
    with pytest.raises(ClientError, match="InvalidSignature"):
        cloud.client("logs", aws_secret_access_key="x" * 40).describe_log_streams(logGroupName=GROUP)


def test_lines_without_a_time_have_that_of_the_line_before_and_clocks_go_no_way_back(tmp_path: Path) -> None:
    (tmp_path / "keeper.log.1").write_text("first\n2026-01-01T00:00:10.500Z sbxguest: two\n")
    (tmp_path / "keeper.log").write_text("three\n2026-01-01T00:00:05.000Z earlier\n\n")
    began = datetime(2026, 1, 1, tzinfo=UTC)
    assert [(line.at_ms % 100_000, line.text[-5:]) for line in read_lines(tmp_path, began)] == [
        (int(began.timestamp() * 1000) % 100_000, "first"),
        *((int(began.timestamp() * 1000 + 10_500) % 100_000, text) for text in (": two", "three", "rlier")),
    ]
