"""The whole table of foreign errors: what each becomes, what it says, and that no row is left untested."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sbxtui.control import error_rows
from sbxtui.control.api import ControlApi
from sbxtui.control.error_rows import Row
from sbxtui.core.errors import (
    AccessDenied,
    Conflict,
    ControlUnavailable,
    ImageNotFound,
    QuotaExceeded,
    RuntimeUnavailable,
    SandboxNotFound,
    SbxError,
    Throttled,
    Unsupported,
    UsageError,
)
from sbxtui.core.model import LaunchRequest
from tests.control.planes import ARN, KEYS, ONCE, context_at
from tests.support.aws_server import AwsServer, Reply, aws_server, error

HTML_404 = Reply(404, "<html><body><h1>404 Not Found</h1></body></html>", {"Content-Type": "text/html"})
HTML_502 = Reply(502, "<html><body><h1>502 Bad Gateway</h1></body></html>", {"Content-Type": "text/html"})
CANONICAL = (
    "The request signature we calculated does not match. The Canonical String for this request should have been "
    "'GET / x-amz-security-token:test-session-token'"
)


@dataclass(frozen=True, slots=True)
class Answered:
    """What AWS answers, and what must become of it: its class, words of the message, words of the hint."""

    reply: Reply
    becomes: type[SbxError]
    message: str
    hint: str


VALIDATION = "ValidationException"
DENIED = "AccessDeniedException"
ANSWERS = {
    "expired session": Answered(error(403, "ExpiredTokenException", "expired"), AccessDenied, "expired", "aws sso"),
    "expired, old code": Answered(error(400, "ExpiredToken", "expired"), AccessDenied, "expired", "renew"),
    "skewed clock": Answered(error(403, "RequestTimeTooSkewed", "x"), AccessDenied, "clock", "timedatectl"),
    "skewed clock in a signature error": Answered(
        error(403, "InvalidSignatureException", "Signature expired: 20260101 is now earlier than 20260102"),
        AccessDenied,
        "clock",
        "timedatectl",
    ),
    "wrong secret": Answered(error(403, "SignatureDoesNotMatch", CANONICAL), AccessDenied, "secret key", "both keys"),
    "unknown key": Answered(
        error(403, "UnrecognizedClientException", "The security token included in the request is invalid."),
        AccessDenied,
        "not known",
        "get-caller-identity",
    ),
    "unsigned": Answered(error(403, "MissingAuthenticationTokenException", "x"), AccessDenied, "not known", "keys"),
    "not signed up": Answered(error(403, "OptInRequired", "sign up"), AccessDenied, "sign up", "console"),
    "denied": Answered(
        error(403, DENIED, "User: arn:aws:iam::1:user/x is not authorized"),
        AccessDenied,
        "not authorized",
        "lambda:RunMicrovm",
    ),
    "denied without a word": Answered(error(403, DENIED, None), AccessDenied, "may not", "lambda:RunMicrovm"),
    "denied by something before AWS": Answered(
        Reply(403, "<html>Forbidden</html>", {"Content-Type": "text/html"}),
        AccessDenied,
        "may not",
        "lambda:RunMicrovm",
    ),
    "connector not granted": Answered(
        error(403, DENIED, "not authorized to perform: lambda:PassNetworkConnector on resource: arn:x"),
        AccessDenied,
        "connector",
        "lambda:PassNetworkConnector",
    ),
    "role not granted": Answered(
        error(403, DENIED, "not authorized to perform: iam:PassRole"), AccessDenied, "role", "iam:PassRole"
    ),
    "memory quota": Answered(
        error(
            402,
            "ServiceQuotaExceededException",
            "The base maximum allocated memory limit has been reached for this account.",
            quotaCode="L-CD1C0CC4",
        ),
        QuotaExceeded,
        "memory",
        "suspended",
    ),
    "other quota": Answered(
        error(402, "ServiceQuotaExceededException", "Too many builds", quotaCode="L-72E0D058"),
        QuotaExceeded,
        "builds",
        "L-72E0D058",
    ),
    "402 without a body": Answered(Reply(402, ""), QuotaExceeded, "limit", "quota"),
    "throttled": Answered(error(429, "ThrottlingException", "Rate exceeded"), Throttled, "too many", "wait"),
    "429 without a body": Answered(Reply(429, ""), Throttled, "too many", "wait"),
    "unknown operation": Answered(error(404, "UnknownOperationException"), Unsupported, "operation", "endpoint"),
    "no capacity": Answered(error(500, "InsufficientCapacityException", "x"), ControlUnavailable, "capacity", "region"),
    "bare image name": Answered(
        error(400, VALIDATION, "Malformed ARN - doesn't start with 'arn:'"), UsageError, "ARN", "microvm-image:NAME"
    ),
    "bare image name elsewhere": Answered(
        error(400, VALIDATION, "Invalid ARN format: base"), UsageError, "ARN", "microvm-image:NAME"
    ),
    "unknown connector": Answered(
        error(400, VALIDATION, "Unrecognized managed network connector ARN"), UsageError, "connector", "INTERNET_EGRESS"
    ),
    "connector by name": Answered(
        error(400, VALIDATION, "Malformed network connector ARN"), UsageError, "connector", "full ARNs"
    ),
    "name taken": Answered(
        error(400, VALIDATION, "A MicroVM image with the name 'n' already exists in this account"),
        Conflict,
        "already exists",
        "another name",
    ),
    "payload without a run hook": Answered(
        error(400, VALIDATION, "The run hook must be enabled in the MicroVM image to pass the run hook payload"),
        Unsupported,
        "run hook",
        "--hooks",
    ),
    "logs without a role": Answered(
        error(400, VALIDATION, "Logging cannot be enabled without providing executionRoleArn"),
        UsageError,
        "role",
        "--role",
    ),
    "an isolation that is not there": Answered(
        error(400, "IsolationUnavailableException", "gvisor: no runsc found"),
        RuntimeUnavailable,
        "no runsc found",
        "sbx local setup",
    ),
    "any other validation": Answered(
        error(400, VALIDATION, "1 validation error detected: Value at 'x' failed"), UsageError, "'x' failed", "values"
    ),
    "400 without a word": Answered(error(400, VALIDATION, None), UsageError, "not accepted", "values"),
    "conflict": Answered(error(409, "ConflictException", "UPDATING"), Conflict, "UPDATING", "sbx ls"),
    "no active version": Answered(
        error(404, "ResourceNotFoundException", f"No active version found for MicroVM image {ARN}"),
        ImageNotFound,
        "No active version",
        "sbx image ls",
    ),
    "html 404": Answered(HTML_404, Unsupported, "no such address", "endpoint"),
    "html 502": Answered(HTML_502, ControlUnavailable, "502", "try again"),
    "500": Answered(error(500, "InternalServerException", "oops"), ControlUnavailable, "oops", "try again"),
    "503": Answered(Reply(503, ""), ControlUnavailable, "503", "try again"),
    "a status nobody knows": Answered(Reply(418, "teapot"), ControlUnavailable, "418", "try again"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[AwsServer]:
    with aws_server(Reply()) as server:
        yield server


@pytest.fixture(scope="module")
def plane(server: AwsServer) -> ControlApi:
    return ControlApi(context_at(server.url, profile="dev"), credentials=KEYS, retries=ONCE)


@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS.keys())
async def test_every_answer_becomes_an_error_with_a_remedy(
    server: AwsServer, plane: ControlApi, case: Answered
) -> None:
    server.script(case.reply)
    with pytest.raises(SbxError) as caught:
        await plane.run(LaunchRequest(ARN), client_token="t")
    found = caught.value
    assert type(found) is case.becomes
    assert found.message.startswith(f"cannot launch a sandbox from image `{ARN}` in context `work`: ")
    assert case.message in found.message
    assert case.hint in found.hint
    assert found.__cause__ is not None
    assert "<" not in found.message
    # Nothing of the credentials, in the message or in the traceback that --debug prints.
    shown = found.message + found.hint + "".join(traceback.format_exception(found))
    assert "test-secret-key" not in shown
    assert "test-session-token" not in shown


def test_no_row_of_the_answered_errors_is_untested() -> None:
    used: set[Row] = set()
    for case in ANSWERS.values():
        code = case.reply.headers.get("x-amzn-ErrorType", str(case.reply.status))
        said = case.reply.body.get("message") or "" if isinstance(case.reply.body, dict) else ""
        used |= set(_first_fitting(code, said))
    assert [row.reason for row in error_rows.ANSWERED if row not in used] == []


def _first_fitting(code: str, message: str) -> list[Row]:
    from sbxtui.control.errors import _fits

    return [row for row in error_rows.ANSWERED if _fits(row, code, message)][:1]


@pytest.mark.parametrize("body", ["<html>Welcome to the hotel's network</html>", "welcome", "", "[]", "null"])
@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/json"])
async def test_a_page_of_somebody_else_is_no_answer(
    server: AwsServer, plane: ControlApi, body: str, content_type: str
) -> None:
    server.script(Reply(200, body, {"Content-Type": content_type}))
    for call in (plane.list(), plane.get("microvm-1"), plane.images(), plane.run(LaunchRequest(ARN), client_token="t")):
        with pytest.raises(ControlUnavailable, match="no answer of AWS"):
            await call


async def test_a_page_of_somebody_else_is_no_suspension(server: AwsServer, plane: ControlApi) -> None:
    server.script(Reply(200, "<html>Welcome</html>", {"Content-Type": "text/html"}))
    for call in (plane.suspend("microvm-1"), plane.resume("microvm-1"), plane.terminate("microvm-1")):
        with pytest.raises(ControlUnavailable, match="no answer of AWS"):
            await call
    with pytest.raises(ControlUnavailable):
        await plane.caller_account()


async def test_an_unknown_sandbox_is_named_with_its_operation(server: AwsServer, plane: ControlApi) -> None:
    server.script(error(404, "ResourceNotFoundException", "Unable to find it"))
    for verb, words in (("get", "look up"), ("suspend", "suspend"), ("resume", "resume")):
        with pytest.raises(SandboxNotFound) as caught:
            await getattr(plane, verb)("microvm-7")
        assert f"cannot {words} sandbox `microvm-7`" in caught.value.message
    with pytest.raises(SandboxNotFound):
        await plane.mint_token("microvm-7", [8080])


async def test_an_unknown_image_is_an_image_not_found(server: AwsServer, plane: ControlApi) -> None:
    server.script(error(404, "ResourceNotFoundException", f"MicroVMImage not found for MicroVMImageID: {ARN}"))
    for call in (plane.image(ARN), plane.image_versions(ARN), plane.image_version(ARN, "1.0")):
        with pytest.raises(ImageNotFound):
            await call


async def test_details_carry_what_a_script_needs(server: AwsServer, plane: ControlApi) -> None:
    server.script(
        Reply(
            429,
            {"message": "Rate exceeded"},
            {"x-amzn-ErrorType": "ThrottlingException", "Retry-After": "30", "x-amzn-RequestId": "req-1"},
        )
    )
    with pytest.raises(Throttled) as caught:
        await plane.get("microvm-1")
    assert caught.value.details == {
        "aws_code": "ThrottlingException",
        "status": 429,
        "request_id": "req-1",
        "retry_after_s": 30,
    }
    assert caught.value.retryable


async def test_hostile_text_in_an_answer_is_made_harmless(server: AwsServer, plane: ControlApi) -> None:
    server.script(error(409, "ConflictException", "\x1b[2Jgone\n\nhint: rm -rf / " + "A" * 5_000))
    with pytest.raises(Conflict) as caught:
        await plane.suspend("microvm-1")
    assert "\x1b" not in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 500
