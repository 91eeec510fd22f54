"""CloudWatch Logs of the local cloud: real boto3, checked against the model, paged without a doubled line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sbxtui.localcloud.logpages import read_lines
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
        ("create_log_group", {"logGroupName": GROUP}, "ResourceAlreadyExistsException"),
        ("create_log_stream", {"logGroupName": "/none", "logStreamName": "s"}, "ResourceNotFoundException"),
        ("delete_log_group", {"logGroupName": GROUP}, "UnsupportedOperationException"),
    ],
)
def test_what_cannot_be_is_refused_in_the_words_of_the_service(
    cloud: LocalCloud, endpoint: Endpoint, operation: str, arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(ClientError) as refused:
        getattr(cloud.client("logs"), operation)(**arguments)
    assert refused.value.response["Error"]["Code"] == code


def test_what_a_client_puts_is_got_and_filtered(cloud: LocalCloud) -> None:
    client, place = cloud.client("logs"), {"logGroupName": "/mine", "logStreamName": "one"}
    client.create_log_group(logGroupName="/mine")
    client.create_log_stream(**place)
    client.put_log_events(**place, logEvents=[{"timestamp": 1, "message": "a\nb"}, {"timestamp": 2, "message": "c"}])
    client.put_log_events(**place, logEvents=[{"timestamp": 1, "message": "late"}])
    got = client.get_log_events(**place, startFromHead=True)["events"]
    assert [(one["timestamp"], one["message"]) for one in got] == [(1, "a\nb"), (1, "late"), (2, "c")]
    found = client.filter_log_events(logGroupName="/mine", filterPattern="la", startTime=1)["events"]
    assert [one["message"] for one in found] == ["late"]
    assert "/mine" in [one["logGroupName"] for one in client.describe_log_groups()["logGroups"]]
    unsorted = [{"timestamp": 2, "message": "b"}, {"timestamp": 1, "message": "a"}]
    with pytest.raises(client.exceptions.InvalidParameterException, match="chronological"):
        client.put_log_events(**place, logEvents=unsorted)
    for taken in ({"logGroupName": "/mine"}, place):
        make = client.create_log_stream if "logStreamName" in taken else client.create_log_group
        with pytest.raises(client.exceptions.ResourceAlreadyExistsException):
            make(**taken)


def test_a_key_of_another_home_reads_nothing(cloud: LocalCloud) -> None:
    with pytest.raises(ClientError, match="InvalidSignature"):
        cloud.client("logs", aws_secret_access_key="x" * 40).describe_log_streams(logGroupName=GROUP)


def test_lines_without_a_time_have_that_of_the_line_before_and_clocks_go_no_way_back(tmp_path: Path) -> None:
    (tmp_path / "keeper.log.1").write_text("first\n2026-01-01T00:00:10.500Z sbxguest: two\n")
    (tmp_path / "keeper.log").write_text("three\n2026-01-01T00:00:05.000Z earlier\n\n")
    began = datetime(2026, 1, 1, tzinfo=UTC)
    assert [
        (line.at_ms % 100_000, line.text[-5:])
        for line in read_lines([tmp_path / "keeper.log.1", tmp_path / "keeper.log"], began)
    ] == [
        (int(began.timestamp() * 1000) % 100_000, "first"),
        *((int(began.timestamp() * 1000 + 10_500) % 100_000, text) for text in (": two", "three", "rlier")),
    ]


def test_a_live_tail_tells_what_comes_new_and_nothing_old(cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    # As `local env` has it: the operation's host has a prefix else, which no loopback address can have.
    monkeypatch.setenv("AWS_DISABLE_HOST_PREFIX_INJECTION", "true")
    client, place = cloud.client("logs"), {"logGroupName": "/tailed", "logStreamName": "one"}
    client.create_log_group(logGroupName="/tailed")
    client.create_log_stream(**place)
    client.put_log_events(**place, logEvents=[{"timestamp": 5, "message": "an old one"}])
    group = f"arn:aws:logs:{cloud.told()['region']}:{cloud.told()['account_id']}:log-group:/tailed"
    tail = client.start_live_tail(logGroupIdentifiers=[group], logEventFilterPattern="one")["responseStream"]
    events = iter(tail)
    assert next(events)["sessionStart"]["logGroupIdentifiers"] == [group]
    # It is put in late, into a stream that was there and one that was not.
    client.put_log_events(**place, logEvents=[{"timestamp": 1, "message": "a late one"}])
    client.create_log_stream(**place | {"logStreamName": "two"})
    client.put_log_events(
        **place | {"logStreamName": "two"},
        logEvents=[{"timestamp": 2, "message": "a new one"}, {"timestamp": 3, "message": "left out"}],
    )
    seen: list[tuple[str, str]] = []
    while len(seen) < 2:
        update = next(events)["sessionUpdate"]
        assert update["sessionMetadata"] == {"sampled": False}
        seen += [(one["logStreamName"], one["message"]) for one in update["sessionResults"]]
    assert sorted(seen) == [("one", "a late one"), ("two", "a new one")]
    tail.close()
    two = {"logGroupIdentifiers": [group, group.replace("tailed", "mine")]}
    with pytest.raises(client.exceptions.InvalidParameterException):
        client.start_live_tail(**two, logStreamNames=["one"])
    for refused, name in (("/tailed", "InvalidParameterException"), (group + "s", "ResourceNotFoundException")):
        with pytest.raises(getattr(client.exceptions, name)):
            client.start_live_tail(logGroupIdentifiers=[refused])
