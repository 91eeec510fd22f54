"""STS, as far as account checks need it: GetCallerIdentity over the query protocol, on the API's own port."""

from __future__ import annotations

import uuid
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from sbxtui.localcloud import faults
from sbxtui.localcloud.faults import FaultBody
from sbxtui.localcloud.sigv4 import HttpRequest

NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
API_VERSION = "2011-06-15"


def answer(request: HttpRequest, account_id: str, access_key_id: str) -> bytes:
    """The XML of a signed request to `/`.

    Raises:
        Fault: It asks for anything but GetCallerIdentity.
    """
    try:
        form = dict(parse_qsl(request.query, strict_parsing=False) + parse_qsl(request.body.decode()))
    except UnicodeDecodeError as exc:
        raise faults.Fault(FaultBody("MalformedQueryString", 400, "The query string is malformed")) from exc
    action = form.get("Action", "")
    if action != "GetCallerIdentity" or form.get("Version", API_VERSION) != API_VERSION:
        message = f"Could not find operation {action[:80] or '(none)'} for version {form.get('Version', '')[:20]}"
        raise faults.Fault(FaultBody("InvalidAction", 400, message))
    return (
        f'<GetCallerIdentityResponse xmlns="{NAMESPACE}"><GetCallerIdentityResult>'
        f"<Arn>arn:aws:iam::{account_id}:user/sbx-local</Arn><UserId>{escape(access_key_id)}</UserId>"
        f"<Account>{account_id}</Account></GetCallerIdentityResult><ResponseMetadata>"
        f"<RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata></GetCallerIdentityResponse>"
    ).encode()


def error(body: FaultBody, request_id: str) -> bytes:
    """The XML of an error."""
    side = "Sender" if body.status < 500 else "Receiver"
    return (
        f'<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{side}</Type><Code>{escape(body.code)}</Code>'
        f"<Message>{escape(body.message or '')}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()
