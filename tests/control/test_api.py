"""What is sent to AWS and what its answers become, over real HTTP with the real client."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sbxtui.control.api import ControlApi
from sbxtui.control.calls import Timeouts
from sbxtui.control.retry import RetryPolicy
from sbxtui.core.errors import ControlUnavailable, TimedOut, UsageError
from sbxtui.core.model import (
    Context,
    ContextKind,
    ContextName,
    IdlePolicy,
    LaunchRequest,
    SandboxState,
)
from tests.control.planes import ARN, KEYS, plane_at, record_answer
from tests.support.aws_server import Reply, aws_server, error

FULL = LaunchRequest(
    image_arn=ARN,
    image_version="3.0",
    execution_role_arn="arn:aws:iam::123456789012:role/sandbox",
    idle=IdlePolicy(max_idle_s=120, suspended_s=0, auto_resume=False),
    max_duration_s=7_200,
    ingress_connectors=("in",),
    egress_connectors=("out",),
    payload='{"v":1}',
    log_group="/sbx",
)


async def test_a_launch_sends_exactly_what_was_asked_for() -> None:
    with aws_server(Reply(200, record_answer())) as server:
        await plane_at(server).run(FULL, client_token="token-1")
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/2025-09-09/microvms")
    assert asked.body == {
        "imageIdentifier": ARN,
        "imageVersion": "3.0",
        "executionRoleArn": "arn:aws:iam::123456789012:role/sandbox",
        "idlePolicy": {"maxIdleDurationSeconds": 120, "suspendedDurationSeconds": 0, "autoResumeEnabled": False},
        "logging": {"cloudWatch": {"logGroup": "/sbx"}},
        "maximumDurationInSeconds": 7_200,
        "ingressNetworkConnectors": ["in"],
        "egressNetworkConnectors": ["out"],
        "runHookPayload": '{"v":1}',
        "clientToken": "token-1",
    }


async def test_a_launch_of_an_image_alone_leaves_the_rest_to_the_platform() -> None:
    with aws_server(Reply(200, record_answer())) as server:
        await plane_at(server).run(LaunchRequest(ARN), client_token="token-1")
    assert server.asked[0].body == {"imageIdentifier": ARN, "clientToken": "token-1"}


async def test_a_launch_that_is_tried_again_keeps_its_token() -> None:
    with aws_server(Reply(502, "<html>bad gateway</html>"), Reply(200, record_answer())) as server:
        record = await plane_at(server).run(FULL, client_token="token-1")
    assert record.id == "microvm-1"
    assert [asked.body["clientToken"] for asked in server.asked] == ["token-1", "token-1"]


async def test_a_record_holds_all_the_control_plane_said() -> None:
    answer = record_answer(
        state="TERMINATED",
        terminatedAt="2026-01-01T00:05:00Z",
        stateReason="Container Stopped with Exit Code: 124",
        executionRoleArn="arn:aws:iam::123456789012:role/x",
        idlePolicy={"maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 5, "autoResumeEnabled": True},
        ingressNetworkConnectors=["a"],
        egressNetworkConnectors=["b"],
    )
    with aws_server(Reply(200, answer)) as server:
        record = await plane_at(server).get("microvm-1")
    assert record.state is SandboxState.TERMINATED
    assert record.started_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert record.terminated_at == datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
    assert record.started_at.utcoffset() == timedelta(0)
    assert record.state_reason == "Container Stopped with Exit Code: 124"
    assert record.idle == IdlePolicy(60, 5, True)
    assert (record.ingress_connectors, record.egress_connectors) == (("a",), ("b",))


async def test_text_from_the_control_plane_is_made_harmless() -> None:
    with aws_server(Reply(200, record_answer(stateReason="\x1b[31mred\x07 \u202etxt"))) as server:
        record = await plane_at(server).get("microvm-1")
    assert record.state_reason == "red txt"


async def test_a_state_nobody_knows_yet_is_unknown_and_not_gone() -> None:
    with aws_server(Reply(200, record_answer(state="HIBERNATED"))) as server:
        record = await plane_at(server).get("microvm-1")
    assert record.state is SandboxState.UNKNOWN
    assert not record.state.is_gone


async def test_an_endpoint_with_a_scheme_is_only_its_host() -> None:
    with aws_server(Reply(200, record_answer(endpoint="https://127.0.0.1:4000/"))) as server:
        assert (await plane_at(server).get("microvm-1")).endpoint == "127.0.0.1:4000"


async def test_an_answer_without_an_id_is_no_sandbox() -> None:
    with (
        aws_server(Reply(200, {"state": "RUNNING"})) as server,
        pytest.raises(ControlUnavailable, match="microvmId"),
    ):
        await plane_at(server).get("microvm-1")


@pytest.mark.parametrize(
    "members",
    [
        {"maximumDurationInSeconds": "soon"},
        {"maximumDurationInSeconds": []},
        {"idlePolicy": {"maxIdleDurationSeconds": "x"}},
        {"ingressNetworkConnectors": [7, None]},
        {"startedAt": "yesterday"},
        {"idlePolicy": "never"},
    ],
    ids=str,
)
async def test_an_answer_that_makes_no_sense_is_an_error_of_ours(members: dict[str, Any]) -> None:
    with aws_server(Reply(200, record_answer(**members))) as server, pytest.raises(ControlUnavailable):
        await plane_at(server).get("microvm-1")


def _item(number: int) -> dict[str, Any]:
    return {
        "microvmId": f"microvm-{number}",
        "state": "RUNNING",
        "imageArn": ARN,
        "imageVersion": "1.0",
        "startedAt": 1_767_225_600 + number,
    }


async def test_a_list_follows_every_page_the_empty_ones_too() -> None:
    with aws_server(
        Reply(200, {"items": [_item(1), _item(2)], "nextToken": "a=="}),
        Reply(200, {"items": [], "nextToken": "b"}),
        Reply(200, {"items": [_item(2), _item(3)]}),
    ) as server:
        listings = await plane_at(server).list()
    assert [listing.id for listing in listings] == ["microvm-1", "microvm-2", "microvm-3"]
    assert [asked.query.get("nextToken") for asked in server.asked] == [None, ["a=="], ["b"]]
    assert all(asked.query["maxResults"] == ["50"] for asked in server.asked)


async def test_a_server_that_repeats_its_pages_is_not_followed_for_ever() -> None:
    with (
        aws_server(Reply(200, {"items": [_item(1)], "nextToken": "a"})) as server,
        pytest.raises(ControlUnavailable, match="again and again"),
    ):
        await plane_at(server).list()


async def test_a_list_of_one_image_says_which() -> None:
    with aws_server(Reply(200, {"items": []})) as server:
        assert await plane_at(server).list(image_arn=ARN) == []
    assert server.asked[0].query["imageIdentifier"] == [ARN]


@pytest.mark.parametrize(
    ("verb", "method", "path"),
    [
        ("suspend", "POST", "/2025-09-09/microvms/microvm-1/suspend"),
        ("resume", "POST", "/2025-09-09/microvms/microvm-1/resume"),
        ("terminate", "DELETE", "/2025-09-09/microvms/microvm-1"),
    ],
)
async def test_lifecycle_calls_send_no_body(verb: str, method: str, path: str) -> None:
    with aws_server(Reply(200, "")) as server:
        await getattr(plane_at(server), verb)("microvm-1")
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.body) == (method, path, None)


async def test_ending_what_is_gone_is_done() -> None:
    with aws_server(error(404, "ResourceNotFoundException", "unknown")) as server:
        await plane_at(server).terminate("microvm-1")


@pytest.mark.parametrize("sandbox_id", ["", "a/b", "../microvms"])
async def test_an_id_that_would_change_the_request_is_refused(sandbox_id: str) -> None:
    with aws_server(Reply()) as server, pytest.raises(UsageError):
        await plane_at(server).terminate(sandbox_id)
    assert server.asked == []


async def test_a_token_opens_the_ports_named_and_no_others() -> None:
    with aws_server(Reply(200, {"authToken": {"X-aws-proxy-auth": "jwe.of.test"}})) as server:
        before = datetime.now(UTC)
        token = await plane_at(server).mint_token("microvm-1", [3000, 8080, 3000], ttl_minutes=15)
    assert server.asked[0].body == {"expirationInMinutes": 15, "allowedPorts": [{"port": 3000}, {"port": 8080}]}
    assert (token.value, token.ports, token.sandbox_id) == ("jwe.of.test", (3000, 8080), "microvm-1")
    assert token.expires_at - token.minted_at == timedelta(minutes=15)
    assert token.minted_at >= before
    assert "jwe.of.test" not in repr(token)


async def test_a_token_for_any_port_leaves_the_hook_port_out() -> None:
    with aws_server(Reply(200, {"authToken": {"X-aws-proxy-auth": "jwe"}})) as server:
        token = await plane_at(server, hook_port=9_100).mint_token("microvm-1", [])
    assert token.ports == ()
    assert server.asked[0].body["allowedPorts"] == [
        {"range": {"startPort": 1, "endPort": 9_099}},
        {"range": {"startPort": 9_101, "endPort": 65_535}},
    ]


@pytest.mark.parametrize(
    ("ports", "ttl_minutes"), [([9000], 60), ([8080, 9000], 60), ([0], 60), ([65_536], 60), ([8080], 0), ([8080], 61)]
)
async def test_a_token_that_must_not_be_is_refused_before_asking(ports: list[int], ttl_minutes: int) -> None:
    with aws_server(Reply()) as server, pytest.raises(UsageError):
        await plane_at(server).mint_token("microvm-1", ports, ttl_minutes=ttl_minutes)
    assert server.asked == []


async def test_an_answer_without_a_token_is_an_error() -> None:
    with (
        aws_server(Reply(200, {"authToken": {"Other": "x"}})) as server,
        pytest.raises(ControlUnavailable, match="no endpoint token"),
    ):
        await plane_at(server).mint_token("microvm-1", [8080])


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (LaunchRequest(ARN, payload="x" * 4_097), "4096"),
        (LaunchRequest(ARN, max_duration_s=28_801), "28800"),
        (LaunchRequest(ARN, max_duration_s=-1), "maximumDurationInSeconds"),
        (LaunchRequest(ARN, idle=IdlePolicy(59, 60)), "maxIdleDurationSeconds"),
        (LaunchRequest(ARN, egress_connectors=("c",) * 11), "10"),
        (LaunchRequest(ARN, log_group="g" * 513), "512"),
    ],
)
async def test_a_launch_beyond_the_platforms_limits_is_refused_before_it_is_sent(
    request_: LaunchRequest, says: str
) -> None:
    with aws_server(Reply()) as server, pytest.raises(UsageError, match=says):
        await plane_at(server).run(request_, client_token="t")
    assert server.asked == []


async def test_the_callers_account_is_asked_of_sts() -> None:
    body = (
        '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
        "<Arn>arn:aws:iam::123456789012:user/x</Arn><UserId>x</UserId><Account>123456789012</Account>"
        "</GetCallerIdentityResult></GetCallerIdentityResponse>"
    )
    with aws_server(Reply(200, body, {"Content-Type": "text/xml"})) as server:
        assert await plane_at(server).caller_account() == "123456789012"
    assert "Action=GetCallerIdentity" in server.asked[0].body


async def test_the_local_clouds_account_is_known_without_asking() -> None:
    local = Context(ContextName("local"), ContextKind.LOCAL, account_id="000000000000")
    assert await ControlApi(local, credentials=KEYS).caller_account() == "000000000000"


async def test_a_call_ends_at_its_deadline_though_the_server_hangs() -> None:
    with aws_server(Reply(hangs=True)) as server:
        plane = plane_at(server, timeouts=Timeouts(connect_s=1, read_s=0.5, call_s=0.1))
        with pytest.raises(TimedOut, match="microvm-1"):
            await plane.get("microvm-1")


async def test_an_answer_that_takes_too_long_is_asked_for_again() -> None:
    with aws_server(Reply(hangs=True), Reply(200, record_answer())) as server:
        plane = plane_at(server, timeouts=Timeouts(connect_s=1, read_s=0.2, call_s=10))
        assert (await plane.get("microvm-1")).id == "microvm-1"


async def test_cancelling_a_call_between_two_tries_ends_it_at_once() -> None:
    with aws_server(Reply(503, "busy", {"Retry-After": "7"})) as server:
        call = asyncio.create_task(plane_at(server, retries=RetryPolicy(max_delay_s=9)).get("microvm-1"))
        async with asyncio.timeout(5):
            while not server.asked:
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call


async def test_many_calls_at_once_share_one_client() -> None:
    with aws_server(Reply(200, record_answer())) as server:
        plane = plane_at(server)
        records = await asyncio.gather(*(plane.get(f"microvm-{number}") for number in range(20)))
    assert len(records) == len(server.asked) == 20


async def test_tokens_and_keys_never_reach_a_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("botocore").setLevel(logging.INFO)
    with aws_server(Reply(200, {"authToken": {"X-aws-proxy-auth": "jwe.of.test"}})) as server:
        await plane_at(server).mint_token("microvm-1", [8080])
    assert "jwe.of.test" not in caplog.text
    assert "test-secret-key" not in caplog.text
    assert "test-session-token" not in caplog.text


_IN_A_HOSTILE_ENVIRONMENT = """
import asyncio, sys
from sbxtui.control.api import ControlApi, StaticCredentials
from sbxtui.core.model import Context, ContextKind, ContextName
local = Context(ContextName("local"), ContextKind.LOCAL, region="local-1", endpoint_url=sys.argv[1])
plane = ControlApi(local, credentials=StaticCredentials("AKIDOURS", "ours"))
print(asyncio.run(plane.get("microvm-1")).id)
"""


def test_nothing_of_the_persons_aws_set_up_disturbs_the_local_cloud(tmp_path: Path) -> None:
    broken = tmp_path / "config"
    broken.write_text("[this is [ no config\n")
    environ = {
        **{key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
        "AWS_PROFILE": "does-not-exist",
        "AWS_CONFIG_FILE": str(broken),
        "AWS_SHARED_CREDENTIALS_FILE": str(broken),
        "AWS_CA_BUNDLE": str(tmp_path / "missing.pem"),
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_USE_FIPS_ENDPOINT": "true",
        "AWS_USE_DUALSTACK_ENDPOINT": "true",
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "AKIDTHEIRS",
        "AWS_SECRET_ACCESS_KEY": "theirs",
        "HTTP_PROXY": "http://127.0.0.1:1",
        "HTTPS_PROXY": "http://127.0.0.1:1",
    }
    with aws_server(Reply(200, record_answer())) as server:
        command = [sys.executable, "-c", _IN_A_HOSTILE_ENVIRONMENT, server.url]
        done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.stdout.strip() == "microvm-1", done.stderr
    assert "Credential=AKIDOURS/" in server.asked[0].headers["Authorization"]
    assert "/local-1/lambda/aws4_request" in server.asked[0].headers["Authorization"]


def test_making_a_control_plane_imports_nothing_of_aws() -> None:
    script = (
        "import sys\n"
        "from sbxtui.control.api import ControlApi\n"
        "from sbxtui.core.model import Context, ContextKind, ContextName\n"
        "ControlApi(Context(ContextName('w'), ContextKind.AWS))\n"
        "print([name for name in sys.modules if name.startswith(('boto', 'urllib3', 'http'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_credentials_never_show_in_a_repr() -> None:
    assert "test-secret-key" not in repr(KEYS)
    assert "test-session-token" not in repr(KEYS)
