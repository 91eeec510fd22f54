"""`GET /v2/metrics`: what the sandbox uses now, once or as lines every `interval_s`."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import AsyncGenerator
from functools import cache

from sbxguest.app import Request, Response, Route, json_response
from sbxguest.probes import Limits, Reading, choose_source, read_network, read_number
from sbxguest.state import Guest, GuestState

_INTERVAL_MIN_S = 0.2
_INTERVAL_MAX_S = 3600.0
_JUMP_S = 0.5
_JUMPS_KEPT = 20
_WINDOW_MIN_S = 0.05
_SHARED_RATIO = 1.25
# Told by this machine where a sandbox's file system is not its own.
_DISK_USED = "/opt/sbx/disk_used"


class ClockWatch:
    """Notices when the wall clock moved by itself: a suspend, a restore, somebody setting it. Looks only when asked."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()
        self._jumps: deque[dict[str, float]] = deque(maxlen=_JUMPS_KEPT)
        self._count = 0

    def look(self, *, is_noted: bool = True) -> float:
        """Compare the clocks and return the jump since the last look in seconds, 0 for none."""
        offset_s = time.time() - time.monotonic()
        jump_s = offset_s - self._offset_s
        self._offset_s = offset_s
        if abs(jump_s) < _JUMP_S or not is_noted:
            return 0.0
        self._count += 1
        self._jumps.append({"noticed_at": round(time.time(), 3), "jump_s": round(jump_s, 3)})
        return jump_s

    def as_json(self) -> dict[str, object]:
        """The number of jumps and the last twenty."""
        return {"jump_count": self._count, "jumps": list(self._jumps)}


clock_watch = ClockWatch()


class Sampler:
    """Takes samples of one sandbox for one reader; shares and percentages are over the time since its last sample."""

    def __init__(self, state: GuestState) -> None:
        settings = state.settings
        self._state = state
        self._limits = Limits.of(settings.limits)
        self._read = choose_source(settings.limits, settings.isolation)
        self._last: tuple[float, Reading] | None = None

    def sample(self) -> dict[str, object]:
        """One sample as the wire has it. Null is unknown; sizes are bytes, times seconds."""
        now_s = time.monotonic()
        reading = self._read()
        clock_watch.look()
        sample: dict[str, object] = {
            "at": round(time.time(), 3),
            "boot_id": self._state.boot_id,
            "server_id": self._state.server_id,
            "uptime_s": round(time.clock_gettime(time.CLOCK_BOOTTIME), 3),
            "source": reading.source,
            "cpu": self._cpu(now_s, reading),
            "memory": {"used_bytes": reading.memory_bytes, "limit_bytes": self._memory_limit(reading)},
            "swap": {"used_bytes": reading.swap_bytes, "limit_bytes": reading.swap_limit_bytes},
            "disk": self._disk(),
            # Without a network or a kernel of its own, these figures are those of the host.
            "net": None if self._state.settings.isolation.startswith("process") else _network(),
            "pids": {"count": reading.pids, "limit": reading.pids_limit or self._limits.pids},
            "load": list(os.getloadavg()) if reading.source == "machine" else None,
            "oom_count": reading.oom_count,
            "open_files": reading.open_files,
            "clock": clock_watch.as_json(),
        }
        self._last = (now_s, reading)
        return sample

    def _memory_limit(self, reading: Reading) -> int | None:
        known = [limit for limit in (reading.memory_limit_bytes, self._limits.memory_bytes) if limit is not None]
        return min(known, default=None)

    def _cpu(self, now_s: float, reading: Reading) -> dict[str, object]:
        cores = reading.quota_cores or self._limits.vcpus or float(os.cpu_count() or 1)
        cpu: dict[str, object] = {
            "cores": round(cores, 3),
            "used_s": reading.cpu_s,
            "per_core_used_s": list(reading.cores_s),
            "throttled_s": reading.throttled_s,
            "throttled_count": reading.throttled_count,
            "window_s": None,
            "percent": None,
            "per_core_percent": [],
        }
        if self._last is None or (window_s := now_s - self._last[0]) < _WINDOW_MIN_S:
            return cpu
        before = self._last[1]
        cpu["window_s"] = round(window_s, 3)
        if reading.cpu_s is not None and before.cpu_s is not None:
            cpu["percent"] = _percent(reading.cpu_s - before.cpu_s, window_s * cores)
        if len(before.cores_s) == len(reading.cores_s):
            pairs = zip(reading.cores_s, before.cores_s, strict=True)
            cpu["per_core_percent"] = [_percent(now - then, window_s) for now, then in pairs]
        return cpu

    def _disk(self) -> dict[str, object]:
        try:
            found = os.statvfs(self._state.workdir)
        except OSError:
            return {"path": self._state.workdir, "used_bytes": None, "free_bytes": None, "limit_bytes": None}
        size_bytes = found.f_blocks * found.f_frsize
        limit_bytes = min(size_bytes, self._limits.disk_bytes or size_bytes)
        free_bytes = min(found.f_bavail * found.f_frsize, limit_bytes)
        used_bytes = read_number(_DISK_USED)
        if used_bytes is not None:
            free_bytes = min(free_bytes, max(0, limit_bytes - used_bytes))
        # A file system much larger than the limit is shared with others, and its use is theirs as well.
        elif size_bytes <= _SHARED_RATIO * limit_bytes:
            used_bytes = (found.f_blocks - found.f_bfree) * found.f_frsize
        return {
            "path": self._state.workdir,
            "used_bytes": used_bytes,
            "free_bytes": free_bytes,
            "limit_bytes": limit_bytes,
            "free_inodes": found.f_favail,
        }


def _percent(part: float, whole: float) -> float:
    return round(max(0.0, 100.0 * part / whole), 2) if whole > 0 else 0.0


def _network() -> dict[str, object] | None:
    try:
        interfaces = read_network()
    except (OSError, ValueError):
        return None
    total = {key: sum(one[key] for one in interfaces.values()) for key in ("rx_bytes", "tx_bytes")}
    return {**total, "interfaces": interfaces}


@cache
def _shared_sampler(state: GuestState) -> Sampler:
    return Sampler(state)


async def get_metrics(request: Request) -> Response:
    """GET /v2/metrics: one sample; with `?follow=1&interval_s=2` a JSON line at once and one per interval."""
    interval_s = request.number("interval_s", 2.0, low=_INTERVAL_MIN_S, high=_INTERVAL_MAX_S)
    if not request.flag("follow"):
        return json_response(_shared_sampler(request.guest.state).sample())
    return Response(200, _follow(request.guest, interval_s), "application/x-ndjson")


async def _follow(guest: Guest, interval_s: float) -> AsyncGenerator[bytes, None]:
    sampler = Sampler(guest.state)
    while True:
        yield json.dumps(sampler.sample(), separators=(",", ":")).encode() + b"\n"
        await asyncio.sleep(interval_s)


ROUTES = (Route("GET", "/v2/metrics", get_metrics),)
