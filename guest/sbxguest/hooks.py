"""The platform's lifecycle hooks, on a port of their own. Anybody in the sandbox can call them too: nothing is believed
twice, nothing can be broken by calling, and every one may be repeated.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import random
import sys
from contextlib import suppress
from typing import Any

from sbxguest import legacy
from sbxguest.app import Request, Response, Route, WireError, json_response
from sbxguest.fileops import FileReader
from sbxguest.filepool import aborted, in_thread, journal_of, owner_of
from sbxguest.filewrite import AtomicWriter, WriteOptions
from sbxguest.guestlog import SELF_TEST
from sbxguest.jobspec import parse
from sbxguest.state import Guest, Identity
from sbxguest.stats import clock_watch

log = logging.getLogger(__name__)

PREFIX = "/aws/lambda-microvms/runtime/v1/"
# An answer that comes after the platform's timeout ends the sandbox.
_SUSPEND_MARGIN_S = 1.0
_VALIDATE_S = 20.0
_FLUSH_S = 4.0
_MAX_BODY_BYTES = 64 * 1024
_TEXT_MAX = 256
_MARK_CHARS = 64


async def ready(request: Request) -> Response:
    """503 until the guest can work, then 200: the platform takes its snapshot at that moment."""
    if not await in_thread(os.path.isdir, request.guest.state.workdir):
        raise WireError(503, "not_ready", f"the work folder {request.guest.state.workdir} is not there yet")
    return json_response({})


async def validate(request: Request) -> Response:
    """Prove on the restored snapshot that commands and terminals run and files can be written; 500 says what cannot."""
    try:
        async with asyncio.timeout(_VALIDATE_S):
            await _check_files(request.guest)
            await _check_exec(request.guest)
    except TimeoutError as exc:
        raise WireError(500, "invalid", "the guest did not finish its self-test in time") from exc
    except WireError as exc:
        raise WireError(500, "invalid", f"the guest's self-test failed: {exc.message}") from exc
    return json_response({})


async def _check_files(guest: Guest) -> None:
    path = os.path.join(guest.state.workdir, f".sbx-validate-{os.urandom(4).hex()}")  # noqa: PTH118 - text, as in files
    content = os.urandom(4096)
    writer = await in_thread(AtomicWriter, path, WriteOptions(), owner_of(guest.state.settings), journal_of(guest))
    try:
        await in_thread(writer.write, [content])
        await in_thread(writer.commit)
        reader = await in_thread(FileReader, path)
        try:
            if await in_thread(reader.read, 0, len(content) + 1) != content:
                raise WireError(500, "invalid", "a file does not read back as it was written")
        finally:
            reader.close()
    finally:
        await aborted(writer)
        with suppress(OSError):
            await in_thread(os.unlink, path)


async def _check_exec(guest: Guest) -> None:
    await _check_output(guest, "out", b"sbx\n")
    try:
        await _check_output(guest, "pty", b"sbx\r\n", tty={"cols": 80, "rows": 24})
    except WireError as exc:
        if exc.code != "unsupported":
            raise
        # An image may be of use without terminals; whoever asks for one is told.
        log.warning("validate: %s", exc.message)


async def _check_output(guest: Guest, channel: str, expected: bytes, **more: object) -> None:
    spec = {"id": f"validate-{os.urandom(8).hex()}", "argv": ["/bin/sh", "-c", "echo sbx"], "actor": SELF_TEST, **more}
    job, _ = await guest.jobs.start(parse(spec, guest.state))
    try:
        while not job.is_finished:
            await job.changed()
        if job.exit["code"] != 0 or job.exit["totals"][channel] != len(expected):
            raise WireError(500, "invalid", f"`/bin/sh -c 'echo sbx'` ended with {job.exit['code']}")
    finally:
        await guest.jobs.delete(job.id)


async def run(request: Request) -> Response:
    """Take this machine's identity. The first call since the boot wins; a later one answers 200 and changes nothing."""
    body = await request.json(limit_bytes=_MAX_BODY_BYTES)
    _reseed()
    state = request.guest.state
    # A fork has run already, as another sandbox.
    state.note_restore(await in_thread(_restore_mark))
    if state.has_run:
        return json_response({"boot_id": state.boot_id, "is_first": False})
    # Machines started from one snapshot share the boot id that was frozen in it.
    state.renew_boot()
    identity = _identity(body)
    state.take_identity(identity)
    log.info("run: this is %s", identity.id or "a sandbox without an id")
    return json_response({"boot_id": state.boot_id, "is_first": True})


def _identity(body: dict[str, Any]) -> Identity:
    payload = body.get("runHookPayload")
    if isinstance(payload, str):
        # Anybody may launch this image with a payload of their own; what is not ours names nothing.
        try:
            payload = json.loads(payload)
        except (ValueError, RecursionError):
            payload = None
    said = payload if isinstance(payload, dict) else {}
    return Identity(
        id=_text(body, "microvmId"),
        name=_text(said, "name"),
        owner=_text(said, "owner"),
        purpose=_text(said, "purpose"),
    )


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if isinstance(value, str) and len(value) <= _TEXT_MAX:
        return value
    if value is not None:
        log.warning("run: %s is not a text of at most %d characters and was left out", name, _TEXT_MAX)
    return ""


def _reseed() -> None:
    """Machines started from one snapshot must not draw the same numbers; the kernel reseeds its own source."""
    random.seed(os.urandom(64))


async def suspend(request: Request) -> Response:
    """Let one-call commands finish, as long as the platform waits; then 200, always: anything else ends the machine."""
    settings = request.guest.state.settings
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, settings.suspend_timeout_s - _SUSPEND_MARGIN_S)):
            await legacy.calls.wait_idle()
            await _flush(request.guest)
    return json_response({})


async def resume(request: Request) -> Response:
    """Reseed, and note how long the sleep was."""
    _reseed()
    request.guest.state.note_restore(await in_thread(_restore_mark))
    jump_s = clock_watch.look()
    log.info("resume: the clock moved by %.1f s", jump_s)
    request.guest.log.say("guest.resumed", clock_jump_s=round(jump_s, 3))
    return json_response({"clock_jump_s": round(jump_s, 3)})


def _restore_mark() -> str:
    """What the host wrote into the one folder jobs cannot enter; new after each restore, empty without any."""
    try:
        with open("/run/sbx/open", encoding="ascii") as file:  # noqa: PTH123 - a file of one line
            return file.read(_MARK_CHARS) if os.geteuid() == 0 else ""
    except (OSError, ValueError):
        return ""


async def terminate(request: Request) -> Response:
    """Bring logs and files to where they outlive the machine, if anything does."""
    log.info("terminate")
    with suppress(TimeoutError):
        async with asyncio.timeout(_FLUSH_S):
            await _flush(request.guest)
    return json_response({})


async def _flush(guest: Guest) -> None:
    sys.stderr.flush()
    await in_thread(_sync_workdir, guest.state.workdir)


def _sync_workdir(workdir: str) -> None:
    """Only the file system of the workdir: without a kernel of its own, `sync` would wait for the whole host."""
    syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
    if syncfs is None:
        return
    with suppress(OSError):
        fd = os.open(workdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            syncfs(fd)
        finally:
            os.close(fd)


ROUTES = tuple(
    Route("POST", PREFIX + handler.__name__, handler, is_always_open=True)
    for handler in (ready, validate, run, resume, suspend, terminate)
)
