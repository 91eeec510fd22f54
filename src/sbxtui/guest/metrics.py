"""`/v2/metrics` on the host: what a guest says it uses, checked and made harmless."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sbxtui.core.errors import GuestUnreachable, SbxError
from sbxtui.core.text import harmless_line
from sbxtui.core.usage import Usage
from sbxtui.guest.faults import translated
from sbxtui.guest.filewire import as_object, lines
from sbxtui.guest.transport import Transport

_DOING = "asking what it uses"
# Long enough for CPU time, which kernels count in hundredths of a second, and short enough to wait for.
_WINDOW_S = 0.4
_LARGEST = 2**63
_CORES_MAX = 1_024
_ID_MAX = 64


class GuestMetrics:
    """Samples of one guest."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def sample(self) -> Usage:
        """One sample, with its CPU share over the half second in which it is taken.

        Raises:
            GuestUnreachable: No answer, or none that can be read. Unsupported: The image's guest has no metrics.
        """
        samples = self.follow(interval_s=_WINDOW_S)
        began = datetime.now(UTC)
        async with aclosing(samples):
            await anext(samples, None)
            async for sample in samples:
                return between(sample, began, datetime.now(UTC))
        raise GuestUnreachable(f"{_DOING}: the answer ended too soon")

    async def glance(self) -> Usage:
        """One sample with one question: its CPU share is over the time since anybody's last such question, if any.

        Raises:
            GuestUnreachable: No answer, or none that can be read. Unsupported: The image's guest has no metrics.
        """
        began = datetime.now(UTC)
        told = await self._transport.call("GET", "/v2/metrics", doing=_DOING)
        return between(decode_usage(told), began, datetime.now(UTC))

    async def set_clock(self) -> bool:
        """Give the sandbox this machine's time, where its clock is its own; returns whether it has it now."""
        document = {"now_s": datetime.now(UTC).timestamp()}
        try:
            told = await self._transport.call("PUT", "/v2/clock", doing="setting its clock", document=document)
        except SbxError:
            return False
        return told.get("was_set") is True

    async def follow(self, *, interval_s: float) -> AsyncGenerator[Usage, None]:
        """A sample at once, whose CPU share is unknown, and one each `interval_s`; ends when the guest does.

        Raises:
            GuestUnreachable: No answer, or none that can be read. Unsupported: The image's guest has no metrics.
        """
        query: dict[str, str | int] = {"follow": 1, "interval_s": str(interval_s)}
        with translated(_DOING):
            async with self._transport.stream("GET", "/v2/metrics", query=query) as answer:
                await self._transport.check(answer, _DOING)
                async for line in lines(answer.pieces()):
                    yield decode_usage(as_object(line))


def decode_usage(told: Mapping[str, Any]) -> Usage:
    """A sample from JSON; what is no number, or none that can be, is unknown."""
    cpu, memory, swap, disk, net, pids, clock = (
        _part(told, name) for name in ("cpu", "memory", "swap", "disk", "net", "pids", "clock")
    )
    return Usage(
        at=_instant(told.get("at")),
        source=harmless_line(str(told.get("source") or "")),
        cores=_number(cpu.get("cores")),
        cpu_percent=_number(cpu.get("percent")),
        core_percents=_numbers(cpu.get("per_core_percent")),
        cpu_s=_number(cpu.get("used_s")),
        throttled_s=_number(cpu.get("throttled_s")),
        memory_bytes=_whole(memory.get("used_bytes")),
        memory_limit_bytes=_whole(memory.get("limit_bytes")),
        swap_bytes=_whole(swap.get("used_bytes")),
        disk_bytes=_whole(disk.get("used_bytes")),
        disk_free_bytes=_whole(disk.get("free_bytes")),
        disk_limit_bytes=_whole(disk.get("limit_bytes")),
        received_bytes=_whole(net.get("rx_bytes")),
        sent_bytes=_whole(net.get("tx_bytes")),
        processes=_whole(pids.get("count")),
        processes_limit=_whole(pids.get("limit")),
        load=_numbers(told.get("load")),
        oom_kills=_whole(told.get("oom_count")),
        open_files=_whole(told.get("open_files")),
        clock_jumps=_whole(clock.get("jump_count")),
        boot_id=_id(told.get("boot_id")),
        server_id=_id(told.get("server_id")),
    )


def between(usage: Usage, began: datetime, ended: datetime) -> Usage:
    """A sample taken between two instants of this machine, with how far the sandbox's clock is off."""
    off_s = max(0.0, (usage.at - ended).total_seconds()) + min(0.0, (usage.at - began).total_seconds())
    return replace(usage, clock_off_s=off_s)


def _part(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = told.get(name)
    return part if isinstance(part, dict) else {}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST:
        return None
    return float(value) if math.isfinite(value) else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _numbers(value: object) -> tuple[float, ...]:
    given = value[:_CORES_MAX] if isinstance(value, list) else []
    return tuple(number for one in given if (number := _number(one)) is not None)


def _id(value: object) -> str:
    return harmless_line(value, limit=_ID_MAX) if isinstance(value, str) else ""


def _instant(value: object) -> datetime:
    try:
        return datetime.fromtimestamp(_number(value) or 0.0, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)
