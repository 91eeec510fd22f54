"""Control planes for tests: contexts that point to a test's server, with retries that do not dawdle."""

from __future__ import annotations

from typing import Any

from sbxtui.control.api import ControlApi, StaticCredentials
from sbxtui.control.calls import Timeouts
from sbxtui.control.retry import RetryPolicy
from sbxtui.core.model import Context, ContextKind, ContextName
from tests.support.aws_server import AwsServer

ARN = "arn:aws:lambda:us-east-1:123456789012:microvm-image:sbx-base"
KEYS = StaticCredentials("AKIDTEST", "test-secret-key", "test-session-token")
HASTY = RetryPolicy(max_attempts=4, first_delay_s=0.001, max_delay_s=0.01)
ONCE = RetryPolicy(max_attempts=1)


def context_at(url: str, **fields: Any) -> Context:
    """An AWS context whose endpoint is `url`."""
    return Context(ContextName("work"), ContextKind.AWS, region="us-east-1", endpoint_url=url, **fields)


def plane_at(
    server: AwsServer, *, retries: RetryPolicy = HASTY, timeouts: Timeouts | None = None, hook_port: int = 9_000
) -> ControlApi:
    """The control plane of a test's server."""
    return ControlApi(
        context_at(server.url),
        credentials=KEYS,
        retries=retries,
        hook_port=hook_port,
        timeouts=timeouts or Timeouts(connect_s=2, read_s=5, call_s=10),
    )


def record_answer(**members: Any) -> dict[str, Any]:
    """What GetMicrovm answers, with some members changed."""
    return {
        "microvmId": "microvm-1",
        "state": "RUNNING",
        "endpoint": "abc.lambda-microvm.us-east-1.on.aws",
        "imageArn": ARN,
        "imageVersion": "3.0",
        "maximumDurationInSeconds": 28_800,
        "startedAt": 1_767_225_600,
        **members,
    }
