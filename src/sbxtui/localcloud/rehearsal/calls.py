"""What the rules do to a call of the API, and to a request of an endpoint."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sbxtui.localcloud import faults
from sbxtui.localcloud.faults import MEMORY_QUOTA_CODE, Fault
from sbxtui.localcloud.rehearsal.rules import ENDPOINT, Kind, RuleBook

HTML_502 = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n"
    b"</body>\r\n</html>\r\n"
)
# Something that befalls one sandbox, by its id.
Blow = Callable[[str], Awaitable[None]]


class BadGateway(Exception):
    """The call is answered with a page of HTML and 502, as by a load balancer that lost its service."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The rules, how a guest is killed at once, without a word to it, and how a sandbox's disk is filled."""

    book: RuleBook
    kill_guest: Blow
    fill_disk: Blow

    async def before_call(self, operation: str, params: Mapping[str, Any]) -> None:
        """Have a call of the API go wrong before anything is done.

        Raises:
            BadGateway, Fault, OSError: It does.
        """
        await self._delay(operation)
        for rule in self.book.firing(operation, Kind.ERROR, Kind.HTML, Kind.THROTTLE, Kind.QUOTA, Kind.DISK, Kind.KILL):
            match rule.kind:
                case Kind.HTML:
                    raise BadGateway
                case Kind.DISK:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                case Kind.KILL:
                    if "microvmIdentifier" in params:
                        await self.kill_guest(params["microvmIdentifier"])
                case _:
                    raise _fault_of(rule.kind)

    def cut_after(self, operation: str) -> int | None:
        """After how many bytes of its body an answer is cut; None: it is not."""
        return next((int(rule.amount) for rule in self.book.firing(operation, Kind.DROP)), None)

    async def before_request(self, sandbox_id: str) -> int:
        """Have a request of an endpoint go wrong: the status it is answered with, or 0."""
        await self._delay(ENDPOINT)
        kinds = (Kind.ERROR, Kind.HTML, Kind.THROTTLE, Kind.TOKEN, Kind.KILL, Kind.DISK)
        for rule in self.book.firing(ENDPOINT, *kinds):
            match rule.kind:
                case Kind.THROTTLE:
                    return 429
                case Kind.TOKEN:
                    return 403
                case Kind.KILL:
                    await self.kill_guest(sandbox_id)
                case Kind.DISK:
                    await self.fill_disk(sandbox_id)
                case _:
                    return 502
        return 0

    async def before_resume(self) -> None:
        """Let a resume take longer."""
        for rule in self.book.firing("ResumeMicrovm", Kind.SLOW_RESUME):
            await asyncio.sleep(rule.amount)

    async def _delay(self, operation: str) -> None:
        for rule in self.book.firing(operation, Kind.LATENCY):
            await asyncio.sleep(rule.amount / 1000)


def _fault_of(kind: Kind) -> Fault:
    if kind is Kind.THROTTLE:
        return faults.throttled("")
    if kind is Kind.QUOTA:
        return faults.quota_exceeded("A quota of this account has been reached.", MEMORY_QUOTA_CODE)
    return faults.internal("Something went wrong, on purpose.")
