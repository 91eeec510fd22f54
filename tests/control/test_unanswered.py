"""Failures without an answer: no credentials, no network, no server, no AWS behind it."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import botocore.exceptions as foreign
import pytest
from botocore.parsers import ResponseParserError

from sbxtui.control import error_rows
from sbxtui.control.api import ControlApi
from sbxtui.control.calls import Call, Timeouts
from sbxtui.control.errors import translate
from sbxtui.core.errors import (
    AccessDenied,
    ControlUnavailable,
    SbxError,
    Unsupported,
    UsageError,
)
from sbxtui.core.model import Context, ContextKind, ContextName
from sbxtui.core.regions import SERVED_REGIONS
from tests.control.planes import HASTY, KEYS, ONCE, context_at
from tests.support.aws_server import AwsServer, Reply, aws_server, error

DENIED = "AccessDeniedException"


@pytest.fixture(scope="module")
def server() -> Iterator[AwsServer]:
    with aws_server(Reply()) as server:
        yield server


def _call(region: str = "us-east-1", *, endpoint_url: str = "", kind: ContextKind = ContextKind.AWS) -> Call:
    context = Context(ContextName("work"), kind, region=region, profile="dev", endpoint_url=endpoint_url)
    return Call("ListMicrovms", context)


def _denied_without_a_word() -> foreign.ClientError:
    return foreign.ClientError(
        {
            "Error": {"Code": DENIED, "Message": None},
            "ResponseMetadata": {"HTTPStatusCode": 403, "HTTPHeaders": {}},
        },
        "ListMicrovms",
    )


def test_a_region_that_is_not_served_is_told_by_its_wordless_denial() -> None:
    found = translate(_denied_without_a_word(), _call("eu-west-3"))
    assert isinstance(found, AccessDenied)
    assert "region `eu-west-3` does not serve" in found.message
    assert all(region in found.hint for region in SERVED_REGIONS)


def test_a_wordless_denial_in_a_served_region_is_a_missing_permission() -> None:
    found = translate(_denied_without_a_word(), _call("eu-west-1"))
    assert "lambda:ListMicrovms" in found.hint


UNANSWERED: dict[str, tuple[Exception, type[SbxError], str, str]] = {
    "no credentials": (foreign.NoCredentialsError(), AccessDenied, "no AWS credentials", "--context local"),
    "half of the credentials": (
        foreign.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
        AccessDenied,
        "incomplete",
        "both",
    ),
    "sso signed out": (
        foreign.UnauthorizedSSOTokenError(),
        AccessDenied,
        "sign-in of profile `dev` has ended",
        "aws sso login --profile dev",
    ),
    "sso token unreadable": (
        foreign.SSOTokenLoadError(profile_name="dev", error_msg="x"),
        AccessDenied,
        "has ended",
        "sso login",
    ),
    "credentials not fetched": (
        foreign.CredentialRetrievalError(provider="process", error_msg="exit 1"),
        AccessDenied,
        "exit 1",
        "get-caller-identity",
    ),
    "no such profile": (foreign.ProfileNotFound(profile="dev"), AccessDenied, "`dev` does not", "list-profiles"),
    "broken config": (
        foreign.ConfigParseError(path="/home/x/.aws/config", error="x"),
        UsageError,
        "configuration",
        "~/.aws",
    ),
    "no region": (foreign.NoRegionError(), UsageError, "no region", "us-east-1"),
    "impossible region": (foreign.InvalidRegionError(region_name="x y"), UsageError, "region", "us-east-1"),
    "old boto3": (
        foreign.UnknownServiceError(service_name="lambda-microvms", known_service_names="s3"),
        Unsupported,
        "too old",
        "pip install",
    ),
    "untrusted certificate": (
        foreign.SSLError(endpoint_url="https://x", error=ssl.SSLError("self-signed certificate")),
        ControlUnavailable,
        "self-signed",
        "AWS_CA_BUNDLE",
    ),
    "dead proxy": (
        foreign.ProxyConnectionError(proxy_url="http://proxy", error="refused"),
        ControlUnavailable,
        "proxy",
        "HTTPS_PROXY",
    ),
    "no answer in time": (
        foreign.ReadTimeoutError(endpoint_url="https://x"),
        ControlUnavailable,
        "in time",
        "try again",
    ),
    "no connection": (
        foreign.EndpointConnectionError(endpoint_url="https://x"),
        ControlUnavailable,
        "cannot reach AWS in `us-east-1`",
        "region",
    ),
    "no connection in time": (
        foreign.ConnectTimeoutError(endpoint_url="https://x"),
        ControlUnavailable,
        "cannot reach",
        "network",
    ),
    "cut connection": (
        foreign.ConnectionClosedError(endpoint_url="https://x"),
        ControlUnavailable,
        "cannot reach",
        "network",
    ),
    "broken connection": (foreign.HTTPClientError(error="reset"), ControlUnavailable, "reset", "try again"),
    "no answer of aws": (ResponseParserError("<secret>"), ControlUnavailable, "no answer of AWS", "network"),
    "invalid request": (
        foreign.ParamValidationError(report="Missing required parameter"),
        UsageError,
        "Missing required",
        "values",
    ),
}


@pytest.mark.parametrize("case", UNANSWERED.values(), ids=UNANSWERED.keys())
def test_every_failure_without_an_answer_has_a_remedy(case: tuple[Exception, type[SbxError], str, str]) -> None:
    error_, becomes, message, hint = case
    found = translate(error_, _call())
    assert type(found) is becomes
    assert found.message.startswith("cannot list sandboxes in context `work`: ")
    assert message in found.message
    assert hint in found.hint


def test_no_row_of_the_unanswered_errors_is_untested() -> None:
    names = {type(case[0]).__name__ for case in UNANSWERED.values()}
    assert [row.codes for row in error_rows.UNANSWERED if not names & set(row.codes)] == []


def test_every_botocore_error_becomes_ours() -> None:
    found = translate(foreign.PaginationError(message="x"), _call())
    assert type(found) is SbxError
    assert "cannot list sandboxes" in found.message


def test_the_local_cloud_gets_a_hint_of_its_own() -> None:
    call = _call("local-1", endpoint_url="http://127.0.0.1:9", kind=ContextKind.LOCAL)
    found = translate(foreign.EndpointConnectionError(endpoint_url="http://127.0.0.1:9"), call)
    assert "sbx local status" in found.hint


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    plane = ControlApi(context_at(f"http://127.0.0.1:{_free_port()}"), credentials=KEYS, retries=HASTY)
    with pytest.raises(ControlUnavailable, match="cannot reach"):
        await plane.list()


async def test_a_name_that_does_not_resolve_is_unavailable() -> None:
    plane = ControlApi(context_at("http://sandbox.invalid"), credentials=KEYS, retries=ONCE)
    with pytest.raises(ControlUnavailable, match="cannot reach"):
        await plane.list()


async def test_plain_http_behind_https_is_a_certificate_problem_tried_once(server: AwsServer) -> None:
    server.script(Reply())
    plane = ControlApi(context_at(server.url.replace("http:", "https:")), credentials=KEYS, retries=HASTY)
    with pytest.raises(ControlUnavailable, match="certificate"):
        await plane.list()


async def test_a_profile_that_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    context = replace(context_at("http://127.0.0.1:1"), profile="no-such-profile")
    with pytest.raises(AccessDenied, match="no-such-profile"):
        await ControlApi(context).list()


async def test_without_credentials_the_way_to_sign_in_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(AccessDenied, match="no AWS credentials"):
        await ControlApi(context_at("http://127.0.0.1:1")).list()


async def test_credentials_of_a_session_that_ended_are_told(server: AwsServer) -> None:
    plane = ControlApi(context_at(server.url, profile="dev"), credentials=KEYS, retries=ONCE)
    server.script(error(403, "ExpiredTokenException", "The security token included in the request is expired"))
    async with asyncio.timeout(10):
        with pytest.raises(AccessDenied) as caught:
            await plane.list()
    assert "`aws sso login --profile dev`" in caught.value.hint


async def test_a_server_that_closes_without_a_word_is_unavailable() -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(slam, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        plane = ControlApi(
            context_at(f"http://127.0.0.1:{port}"), credentials=KEYS, retries=HASTY, timeouts=Timeouts(call_s=10)
        )
        with pytest.raises(ControlUnavailable):
            await plane.list()


_HANGING_CALL = """
import asyncio, sys
from tests.control.planes import KEYS, context_at
from sbxtui.control.api import ControlApi
try:
    asyncio.run(ControlApi(context_at(sys.argv[1]), credentials=KEYS).list())
except KeyboardInterrupt:
    print("interrupted")
"""


async def test_ctrl_c_does_not_wait_for_a_server_that_hangs() -> None:
    root = str(Path(__file__).parents[2])
    with aws_server(Reply(hangs=True)) as hanging:
        command = (sys.executable, "-c", _HANGING_CALL, hanging.url)
        process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        try:
            async with asyncio.timeout(10):
                while not hanging.asked:
                    await asyncio.sleep(0.02)
            process.send_signal(signal.SIGINT)
            # An attempt may take 20 s; the person's patience ends before that.
            out, _ = await asyncio.to_thread(process.communicate, timeout=10)
        finally:
            process.kill()
            process.wait()
    assert out == "interrupted\n"
