"""Every error the API answers: AWS's code, status and body, raised as one exception type and rendered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MEMORY_QUOTA_CODE = "L-CD1C0CC4"


@dataclass(frozen=True, slots=True)
class FaultBody:
    """What goes over the wire: `code` in `x-amzn-ErrorType`, `members` beside the message in the JSON body.

    The service answers some requests with a message that is null.
    """

    code: str
    status: int
    message: str | None
    members: Mapping[str, str] = field(default_factory=dict)
    retry_after_s: int | None = None


class Fault(Exception):
    """An answer that is an error; raised by handlers, rendered by the server."""

    def __init__(self, body: FaultBody) -> None:
        super().__init__(f"{body.code}: {body.message}")
        self.body = body


def validation(message: str | None) -> Fault:
    """400: the request breaks a rule of its shape or of the service."""
    return Fault(FaultBody("ValidationException", 400, message))


def serialization(message: str) -> Fault:
    """400: a member has the wrong JSON type, or the body is no JSON."""
    return Fault(FaultBody("SerializationException", 400, message))


def access_denied(message: str | None) -> Fault:
    """403: this caller may not do this."""
    return Fault(FaultBody("AccessDeniedException", 403, message))


def forbidden(code: str, message: str) -> Fault:
    """403 of the signature check, with AWS's own code."""
    return Fault(FaultBody(code, 403, message))


def not_found(message: str, resource_type: str, resource_id: str) -> Fault:
    """404 with the object that is missing."""
    return Fault(
        FaultBody("ResourceNotFoundException", 404, message, {"resourceType": resource_type, "resourceId": resource_id})
    )


def conflict(message: str, resource_type: str, resource_id: str) -> Fault:
    """409: the object exists, in a state that forbids this."""
    return Fault(
        FaultBody("ConflictException", 409, message, {"resourceType": resource_type, "resourceId": resource_id})
    )


def quota_exceeded(message: str, quota_code: str) -> Fault:
    """402: the account is full."""
    members = {"quotaCode": quota_code, "serviceCode": "lambda"}
    return Fault(FaultBody("ServiceQuotaExceededException", 402, message, members))


def memory_quota_exceeded() -> Fault:
    """402: all sandboxes together would exceed the memory this home may promise."""
    message = "The base maximum allocated memory limit has been reached for this account."
    return quota_exceeded(message, MEMORY_QUOTA_CODE)


def throttled(quota_code: str) -> Fault:
    """429: more calls than the account may make in a moment."""
    members = {"quotaCode": quota_code, "serviceCode": "lambda"} if quota_code else {}
    return Fault(FaultBody("ThrottlingException", 429, "Rate exceeded", members, retry_after_s=1))


def invalid_parameter(message: str) -> Fault:
    """400 of network connectors: the request breaks a rule of its shape or of the service."""
    return Fault(FaultBody("InvalidParameterValueException", 400, message, {"Type": "User"}))


def resource_conflict(message: str) -> Fault:
    """409 of network connectors."""
    return Fault(FaultBody("ResourceConflictException", 409, message, {"Type": "User"}))


def no_such_resource(message: str) -> Fault:
    """404 of network connectors."""
    return Fault(FaultBody("ResourceNotFoundException", 404, message, {"Type": "User"}))


def isolation_unavailable(message: str) -> Fault:
    """400 in words of our own, for what the service does not know: the isolation that was asked for is not there."""
    return Fault(FaultBody("IsolationUnavailableException", 400, message))


def unsupported(operation: str) -> Fault:
    """400: an operation of the model that the local cloud does not do yet."""
    message = f"The local cloud does not support {operation} yet; use an AWS context for it."
    return Fault(FaultBody("UnsupportedOperationException", 400, message))


def unknown_operation() -> Fault:
    """404: no operation of the model has this method and path."""
    return Fault(FaultBody("UnknownOperationException", 404, "No operation of this service has that method and path."))


def internal(message: str, *, retry_after_s: int | None = None) -> Fault:
    """500: nothing the caller can change in the request."""
    return Fault(FaultBody("InternalServerException", 500, message, retry_after_s=retry_after_s))


def draining() -> Fault:
    """500, retryable: this process takes no new sandboxes because a newer one waits for it to end."""
    return internal(
        "The local cloud is draining and starts no new sandboxes; it ends when it is empty.", retry_after_s=5
    )
