"""Every error sbx raises on purpose.

SbxError                      1  failed
├── UsageError                2  bad flag, name, size or file
│   └── ConfirmationMissing      nobody agreed to what cannot be taken back
├── AddressInUse              3
├── NotFound                  4
│   ├── SandboxNotFound
│   │   └── SandboxEnded          it was there, and its record says that it ended
│   ├── ImageNotFound
│   └── FileMissing
├── Conflict                  5  wrong state
│   ├── NameTaken
│   ├── AmbiguousReference
│   └── Unsupported              the image's guest, or the context, cannot do this
├── AccessDenied              6  credentials or permission
├── Unavailable               7  unreachable; retrying is safe
│   ├── ControlUnavailable
│   ├── GuestUnreachable
│   │   └── ConnectionLost     255  while a command ran, which goes on
│   ├── UntrustedEndpoint        its certificate does not hold; retrying cannot help
│   ├── RuntimeUnavailable       no isolation runtime works on this machine
│   └── TimedOut
├── QuotaExceeded             8
│   └── Throttled
├── PolicyDenied              9
│   └── HostPathDenied           a path of this machine that is not allowed
├── Incomplete               10  finished, with problems listed
├── StoreError                1  the store cannot be opened or written
│   ├── StoreTooNew
│   ├── StoreCorrupt
│   └── StoreUnwritable          a full disk: what it holds can still be read
├── CommandTimedOut         124  a command ran out of its time; partial output kept
└── Interrupted             130
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sbxtui.core.text import brief


class SbxError(Exception):
    """An error with a remedy.

    Args:
        message: What failed, on which object, and why; no trailing full stop.
        hint: What to do next, as a sentence or a command.
        details: JSON-safe facts for scripts; never secrets.
    """

    code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "", details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, object] = dict(details or {})

    def as_json(self) -> dict[str, object]:
        """The `error` object of the `--json` contract."""
        return {
            "code": self.code,
            "message": brief(self.message),
            "hint": brief(self.hint),
            "retryable": self.retryable,
            "details": self.details,
        }


class UsageError(SbxError):
    """The caller asked for something that cannot be: nothing was changed."""

    code = "usage"
    exit_code = 2


class ConfirmationMissing(UsageError):
    """Something would be lost, and nobody agreed to that: nothing was changed."""

    code = "confirm_required"


class AddressInUse(SbxError):
    """A local address is taken."""

    code = "address_in_use"
    exit_code = 3


class NotFound(SbxError):
    """The named thing does not exist."""

    code = "not_found"
    exit_code = 4


class SandboxNotFound(NotFound):
    """No sandbox of this context has that name, id or prefix."""

    code = "sandbox_not_found"


class SandboxEnded(SandboxNotFound):
    """The control plane's record says that the sandbox was terminated."""

    code = "sandbox_ended"


class ImageNotFound(NotFound):
    """No image of that name, or none with an active version."""

    code = "image_not_found"


class FileMissing(NotFound):
    """A path does not exist in the sandbox or on this machine."""

    code = "file_not_found"


class Conflict(SbxError):
    """The object exists but is in a state that forbids this."""

    code = "conflict"
    exit_code = 5


class NameTaken(Conflict):
    """Another sandbox of the context has this name."""

    code = "name_taken"


class AmbiguousReference(Conflict):
    """A prefix fits more than one sandbox."""

    code = "ambiguous"


class Unsupported(Conflict):
    """The image's guest or the control plane lacks what was asked."""

    code = "unsupported"


class AccessDenied(SbxError):
    """Credentials are missing, expired or not allowed to do this."""

    code = "access_denied"
    exit_code = 6


class Unavailable(SbxError):
    """Something did not answer. Retrying is safe."""

    code = "unavailable"
    exit_code = 7
    retryable = True


class ControlUnavailable(Unavailable):
    """The control plane did not answer, or answered that it cannot now."""

    code = "control_unavailable"


class GuestUnreachable(Unavailable):
    """The guest did not answer before the deadline. Retrying is safe."""

    code = "guest_unreachable"


class ConnectionLost(GuestUnreachable):
    """The way to a running command was lost and did not come back; `details["job"]` is its id. It goes on."""

    code = "connection_lost"
    exit_code = 255
    retryable = False


class UntrustedEndpoint(Unavailable):
    """An endpoint's certificate cannot be verified; nothing was sent."""

    code = "untrusted_endpoint"
    retryable = False


class RuntimeUnavailable(Unavailable):
    """No isolation runtime works on this machine, or the one asked for is broken."""

    code = "runtime_unavailable"
    retryable = False


class TimedOut(Unavailable):
    """A wait ran out; what was waited for may still happen."""

    code = "timed_out"


class QuotaExceeded(SbxError):
    """The account's or the machine's limit is reached."""

    code = "quota_exceeded"
    exit_code = 8


class Throttled(QuotaExceeded):
    """Too many requests; wait and retry."""

    code = "throttled"
    retryable = True


class PolicyDenied(SbxError):
    """A policy forbids this; nothing was started."""

    code = "policy_denied"
    exit_code = 9


class HostPathDenied(PolicyDenied):
    """A path of this machine lies outside of the folders that are allowed; nothing of it was read or written."""

    code = "host_path_denied"


class Incomplete(SbxError):
    """The work finished, but some parts of it failed; `details` lists them."""

    code = "incomplete"
    exit_code = 10


class StoreError(SbxError):
    """The store cannot be opened, locked or written; nothing was changed."""

    code = "store"


class StoreTooNew(StoreError):
    """A newer sbx wrote the store in a way this one cannot read."""

    code = "store_too_new"


class StoreCorrupt(StoreError):
    """The store's file is damaged; it was kept aside."""

    code = "store_corrupt"


class StoreUnwritable(StoreError):
    """The store cannot be written now, as on a full disk; what it holds can still be read, and nothing was changed."""

    code = "store_unwritable"


class CommandTimedOut(SbxError):
    """The command ran out of its time and was killed with all its children."""

    code = "command_timed_out"
    exit_code = 124


class Interrupted(SbxError):
    """The person pressed Ctrl-C."""

    code = "interrupted"
    exit_code = 130
