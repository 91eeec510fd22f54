"""A shell over the endpoint: the platform's WebSocket on the client's side, a job on a terminal in the sandbox.

The first message tells the session; then output comes as bytes, and what is sent is typed, but for a text that gives
the terminal a size. Its end is close 1000. Whoever leaves hangs up: there is no way back into a session.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable
from typing import Any

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from sbxguest import wire
from sbxtui.core.errors import SbxError
from sbxtui.core.heads import RequestHead
from sbxtui.localcloud.gate import SUBPROTOCOL
from sbxtui.localcloud.guestcalls import GuestCalls, GuestRefused
from sbxtui.localcloud.relay import Sink, Source, write_to
from sbxtui.localcloud.waits import NotReachable

_MAX_MESSAGE_BYTES = 1 << 20
# After the shell's end the client says that it heard of it.
_FAREWELL_S = 5.0
# What was typed and nobody read yet.
_MAX_TYPED_BYTES = 256 * wire.KIB
# A shell that reads its own start-up files, not those of a login, which would undo the PATH of an image.
_COMMAND = ("sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh")


class ShellSocket:
    """One session. `touch` is told of every byte."""

    def __init__(
        self, request: RequestHead, source: Source, writer: Sink, guest: GuestCalls, touch: Callable[[], None]
    ) -> None:
        self._request = request
        self._source = source
        self._writer = writer
        self._guest = guest
        self._touch = touch
        self._protocol = ServerProtocol(subprotocols=[Subprotocol(SUBPROTOCOL.decode())], max_size=_MAX_MESSAGE_BYTES)
        self._session = str(uuid.uuid4())
        self._is_there = asyncio.Event()
        # Messages, and whether each is a text.
        self._typed: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue()
        self._typed_bytes = 0
        self._message, self._is_text = b"", False
        self._writing = asyncio.Lock()

    async def serve(self) -> None:
        """Until the shell's end or the client's.

        Raises:
            OSError: The client is gone.
        """
        self._protocol.receive_data(self._request.head.to_bytes())
        for asked in self._protocol.events_received():
            if isinstance(asked, Request):
                self._protocol.send_response(self._protocol.accept(asked))
        if self._protocol.state is State.OPEN:
            self._protocol.send_text(json.dumps({"type": "session_init", "session_id": self._session}).encode())
        await self._flush()
        if self._protocol.state is not State.OPEN:
            return
        tasks = [asyncio.create_task(work) for work in (self._show(), self._hear(), self._type())]
        showing, hearing, _ = tasks
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if showing in done:
                await asyncio.wait({hearing}, timeout=_FAREWELL_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _show(self) -> None:
        """Run the shell, and pass on what it says."""
        code, reason = CloseCode.NORMAL_CLOSURE, "shell exited"
        try:
            async with contextlib.aclosing(self._guest.frames(self._job())) as frames:
                async for frame in frames:
                    self._is_there.set()
                    if frame.type == wire.FrameType.DATA and self._protocol.state is State.OPEN:
                        self._touch()
                        self._protocol.send_binary(frame.payload)
                        await self._flush()
        except (GuestRefused, NotReachable, SbxError):
            code, reason = CloseCode.INTERNAL_ERROR, ""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
        await self._flush()

    def _job(self) -> dict[str, Any]:
        return {
            "id": self._session,
            "argv": list(_COMMAND),
            "tty": {"cols": 0, "rows": 0, "term": "xterm"},
            "log": "hold",
            "on_disconnect": "kill",
            "label": "shell",
        }

    async def _hear(self) -> None:
        while data := await self._source.read():
            self._touch()
            self._protocol.receive_data(data)
            for frame in self._protocol.events_received():
                if isinstance(frame, Frame):
                    self._take(frame)
            await self._flush()
            if self._protocol.state is not State.OPEN:
                return

    def _take(self, frame: Frame) -> None:
        """Put a message together, and have it typed."""
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._message, self._is_text = b"", frame.opcode is Opcode.TEXT
        self._message += frame.data
        if not frame.fin or not self._message:
            return
        self._typed_bytes += len(self._message)
        if self._typed_bytes > _MAX_TYPED_BYTES:
            self._protocol.fail(CloseCode.MESSAGE_TOO_BIG, "more is typed than is read")
            return
        self._typed.put_nowait((self._message, self._is_text))

    async def _type(self) -> None:
        await self._is_there.wait()
        offset = 0
        try:
            while True:
                message, is_text = await self._typed.get()
                if is_text and (size := _size_in(message)):
                    with contextlib.suppress(GuestRefused):
                        await self._guest.ask("POST", f"/v2/jobs/{self._session}/resize", json.dumps(size).encode())
                else:
                    offset = await self._type_all(message, offset)
                self._typed_bytes -= len(message)
        except (GuestRefused, NotReachable, SbxError):
            # It has ended: who shows what it said knows that, too.
            await asyncio.get_running_loop().create_future()

    async def _type_all(self, message: bytes, offset: int) -> int:
        """Type something from there on; where the input goes on behind it."""
        end = offset + len(message)
        while offset < end:
            path = f"/v2/jobs/{self._session}/stdin?offset={offset}"
            told = await self._guest.ask("POST", path, message[offset - end :], kind="application/octet-stream")
            offset = int(told["accepted"])
        return offset

    async def _flush(self) -> None:
        async with self._writing:
            for data in self._protocol.data_to_send():
                if data:
                    await write_to(self._writer, data)


def _size_in(text: bytes) -> dict[str, int] | None:
    """The size a text gives the terminal; None: it says something else, which is typed."""
    try:
        told = json.loads(text)
        return {"cols": int(told["cols"]), "rows": int(told["rows"])} if told["type"] == "resize" else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
