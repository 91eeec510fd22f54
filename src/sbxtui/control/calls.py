"""What we ask of AWS, in words for people: every error names the operation and the object it was about."""

from __future__ import annotations

from typing import Literal

from sbxtui.core.model import Context
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass

Kind = Literal["sandbox", "image", "account", "log group", "bucket", ""]

# Operation of AWS -> what it does to the thing it is about.
_WORDS = {
    "RunMicrovm": "launch a sandbox from image",
    "GetMicrovm": "look up sandbox",
    "ListMicrovms": "list sandboxes",
    "SuspendMicrovm": "suspend sandbox",
    "ResumeMicrovm": "resume sandbox",
    "TerminateMicrovm": "terminate sandbox",
    "CreateMicrovmAuthToken": "mint an endpoint token for sandbox",
    "ListMicrovmImages": "list images",
    "ListManagedMicrovmImages": "list managed images",
    "GetMicrovmImage": "look up image",
    "ListMicrovmImageVersions": "list versions of image",
    "ListManagedMicrovmImageVersions": "list versions of managed image",
    "GetMicrovmImageVersion": "look up a version of image",
    "ListMicrovmImageBuilds": "list the builds of image",
    "CreateMicrovmImage": "make image",
    "UpdateMicrovmImage": "make a version of image",
    "DeleteMicrovmImage": "delete image",
    "DeleteMicrovmImageVersion": "delete a version of image",
    "CreateBucket": "make bucket",
    "HeadBucket": "look up bucket",
    "PutObject": "upload to bucket",
    "GetCallerIdentity": "ask whose credentials these are",
    "DescribeLogStreams": "list the streams of log group",
    "GetLogEvents": "read log group",
}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds for connecting, for one answer, and for a whole call with its retries."""

    connect_s: float = 5.0
    read_s: float = 20.0
    call_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the operation in AWS's spelling, the kind of thing it is about, and which one."""

    operation: str
    context: Context
    kind: Kind = ""
    target: str = ""
    service: str = "lambda-microvms"

    def __str__(self) -> str:
        """What was tried, as `suspend sandbox `x` in context `y``."""
        words = _WORDS.get(self.operation, self.operation)
        target = f" `{harmless_line(self.target, limit=200)}`" if self.target else ""
        return f"{words}{target} in context `{self.context.name}`"

    @property
    def action(self) -> str:
        """The IAM action the operation needs."""
        prefix = self.service if self.service in ("sts", "logs", "s3") else "lambda"
        return f"{prefix}:{self.operation}"
