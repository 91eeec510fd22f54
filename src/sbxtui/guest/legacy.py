"""Speaks v1, the old contract of images that have nothing else: exec, read and write, one blocking call each."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sbxtui.core.errors import SbxError, UsageError
from sbxtui.core.model import ExecResult
from sbxtui.guest import filewire
from sbxtui.guest.faults import garbled, raise_for_answer, translated
from sbxtui.guest.filewire import shown
from sbxtui.guest.http1 import Patience
from sbxtui.guest.transport import Transport

# Whole documents, base64 and JSON: beyond this a v1 image is of no use, and a hostile one must not fill our memory.
MAX_ANSWER_BYTES = 256 * 1024 * 1024
_NO_LIMIT_S = 8 * 3600.0
_MARGIN_S = 30.0
_TIMED_OUT_CODE = 124
_NOT_FOUND_CODE = 127
_JSON = {"content-type": "application/json"}


class LegacyGuest:
    """A guest that answers v1 only.

    Every method raises `GuestUnreachable` when it does not answer or answers nonsense.

    Args:
        transport: To the guest; closed by its owner.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Run a command to its end. Cancelling leaves it running: v1 has no way to stop one.

        Returns:
            As for a job: 127 when there is no such command. A command that ran out of time has code 124 and, unlike a
            job, no output at all, which `truncated` says.
        """
        body: dict[str, Any] = {"command": argv[0], "args": list(argv[1:])}
        body |= {"cwd": cwd} if cwd else {}
        body |= {"env": dict(env)} if env else {}
        body |= {"timeout": timeout_s} if timeout_s else {}
        started_s = time.monotonic()
        wait_s = (timeout_s or _NO_LIMIT_S) + _MARGIN_S
        try:
            said = await self._post("/v1/exec", body, f"running {shown(argv[0])}", wait_s=wait_s)
        except SbxError as exc:
            result = _failed_exec(exc, time.monotonic() - started_s)
            if result is None:
                raise
            return result
        code = said.get("exit_code")
        if isinstance(code, bool) or not isinstance(code, int):
            raise garbled("`exit_code` is no number")
        # Old guests give a program that a signal ended a negative code.
        signal = -code if -64 <= code < 0 else 0
        return ExecResult(
            exit_code=128 + signal if signal else code,
            stdout=_decoded(said, "stdout"),
            stderr=_decoded(said, "stderr"),
            signal=signal,
            duration_s=time.monotonic() - started_s,
            truncated=said.get("truncated") is True,
        )

    async def read(self, path: str) -> bytes:
        """A whole file, of at most about 190 MiB.

        Raises:
            FileMissing: There is none.
        """
        said = await self._post("/v1/fs/read", {"path": path}, f"reading {shown(path)}")
        return _decoded(said, "content")

    async def write(self, path: str, content: bytes) -> int:
        """Write a whole file and return its size; v1 does not do it in one step."""
        encoded = base64.b64encode(content).decode()
        body = {"path": path, "content": encoded, "encoding": "base64"}
        return filewire.whole(await self._post("/v1/fs/write", body, f"writing {shown(path)}"), "bytes_written")

    async def _post(self, url: str, body: Mapping[str, object], doing: str, *, wait_s: float = 300.0) -> dict[str, Any]:
        patience = Patience(answer_s=wait_s, send_s=60.0)
        with translated(doing):
            content = json.dumps(body).encode()
            async with self._transport.stream("POST", url, content=content, patience=patience, headers=_JSON) as answer:
                await raise_for_answer(answer)
                pieces: list[bytes] = []
                size_bytes = 0
                async for piece in answer.prompt_pieces():
                    size_bytes += len(piece)
                    if size_bytes > MAX_ANSWER_BYTES:
                        raise UsageError(
                            f"{doing}: the answer is larger than {MAX_ANSWER_BYTES // 2**20} MiB",
                            hint="this image's guest sends whole answers only; rebuild the image",
                        )
                    pieces.append(piece)
        return filewire.as_object(b"".join(pieces))


def _failed_exec(exc: SbxError, duration_s: float) -> ExecResult | None:
    """The result an error of v1 stands for; None if it is a real error."""
    status = exc.details.get("http_status")
    if status == 504:
        return ExecResult(_TIMED_OUT_CODE, b"", b"", timed_out=True, duration_s=duration_s, truncated=True)
    if status == 400 and "not found" in exc.message:
        return ExecResult(_NOT_FOUND_CODE, b"", f"sbx: {exc.message}\n".encode(), duration_s=duration_s)
    return None


def _decoded(fields: Mapping[str, Any], name: str) -> bytes:
    text = filewire.text(fields, name)
    if fields.get("encoding", "base64") != "base64":
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise garbled(f"`{name}` is no base64") from exc
