"""Streams over a connection that may be lost: who sends next, what is told, and what a new connection takes up.

No I/O: whoever has the connection calls `link`, passes on what comes (`receive`) and sends what `next_message` gives
whenever `on_ready` was called.
The sockets are `Sink`s, which pull what came and are told what else became of their stream.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sbxguest.mux import frames
from sbxguest.mux.frames import FrameReader, FrameType, MuxFrame, Part, checked_whole, encode, json_frame, whole
from sbxguest.mux.stream import Stream
from sbxguest.wire import BadFrame


class Sink(Protocol):
    """The socket of a stream. What it is told it may answer by calls of the mux."""

    def on_data(self) -> None:
        """Something came, or an end: pull it from the stream when there is room for it."""

    def on_credit(self) -> None:
        """The other end took something, or takes more than it said before: there may be room to write again."""

    def on_reset(self, code: str, message: str) -> None:
        """The stream is no more; `code` is empty, or why it was refused."""


class Mux:
    """One end of a tunnel.

    Args:
        made: Names this end's life; empty makes up a name. The end that opens streams tells by it whether the other one
            still is the one that knew them.
        on_open: Called for each stream the other end asks for; it attaches a sink. None at the end that opens streams.

    Attributes:
        on_ready: Called when `next_message` may have something, and more often.
    """

    def __init__(self, *, made: str = "", on_open: Callable[[Stream], None] | None = None) -> None:
        self.made = made or secrets.token_hex(8)
        self.streams: dict[int, Stream] = {}
        self.is_linked = False
        # Counts every byte that moves, so that whoever looks twice knows whether something did.
        self.moved_bytes = 0
        self.goodbye = ""
        self.on_ready: Callable[[], None] = _nothing
        self._on_open = on_open
        self._sinks: dict[int, Sink] = {}
        self._opened = 0
        self._peer_made = ""
        self._piece_bytes = frames.PAYLOAD_BYTES
        self._reader = FrameReader()
        self._hello = b""
        self._owes_sign = False
        self._untold: dict[int, Stream] = {}
        self._control: deque[bytes] = deque()
        self._ready: deque[Stream] = deque()

    # The connection's side.

    def link(self) -> None:
        """A new connection is there: HELLO is what it sends first."""
        self.is_linked = False
        self._reader = FrameReader()
        for kept in (self._control, self._ready, self._untold):
            kept.clear()
        entries: list[list[int]] = []
        for stream in self.streams.values():
            stream.is_queued = False
            entries.append([stream.id, *stream.incoming.told(), stream.incoming.window])
        hello = {"made": self.made, "opened": self._opened, "payload": frames.MAX_PAYLOAD_BYTES, "streams": entries}
        self._hello = encode(json_frame(FrameType.HELLO, hello))
        self.on_ready()

    def unlink(self) -> None:
        """The connection is gone; streams wait for the next one."""
        self.is_linked = False

    def next_message(self) -> list[Part]:
        """What to send next, in parts: all that is told, then a piece of each stream in turn; empty for nothing."""
        if self._hello:
            hello, self._hello = self._hello, b""
            return [hello]
        if not self.is_linked:
            return []
        parts: list[Part] = list(self._control)
        self._control.clear()
        if self._owes_sign:
            self._owes_sign = False
            parts.append(frames.head(FrameType.PONG))
        size_bytes = 0
        while self._ready and size_bytes < frames.MESSAGE_BYTES:
            stream = self._ready.popleft()
            stream.is_queued = False
            if stream.id in self.streams:
                size_bytes += self._put(stream, parts)
        if parts and self._untold:
            parts += self._credits()
        return parts

    @property
    def has_more(self) -> bool:
        """Whether `next_message` has something now."""
        return bool(self._hello or self._ready or self._control or self._owes_sign)

    def _put(self, stream: Stream, parts: list[Part]) -> int:
        """A piece of a stream, if it has one to send; of how many bytes."""
        piece = stream.out.take(min(self._piece_bytes, frames.SHARED_BYTES) if self._ready else self._piece_bytes)
        if piece is None:
            return 0
        at, data = piece
        size_bytes = sum(map(len, data))
        parts.append(frames.head(frames.DATA if data else frames.FIN, stream.id, at, size_bytes))
        parts += data
        self.moved_bytes += size_bytes
        self._queue(stream)
        return size_bytes

    def _credits(self) -> list[bytes]:
        """What was taken and is not worth a message of its own."""
        untold = [stream for stream in self._untold.values() if stream.id in self.streams]
        self._untold.clear()
        return [frames.head(frames.CREDIT, one.id, one.incoming.told()[1]) for one in untold]

    def receive(self, data: Part) -> None:
        """Take in what came over the connection, of which nothing is kept where it lies.

        Raises:
            BadFrame: No such end sends that; the connection is of no further use.
        """
        # Pieces of one stream that came together go to its socket together.
        fed: Stream | None = None
        try:
            for frame in self._reader.feed(data):
                stream = self.streams.get(frame.stream) if self.is_linked else None
                if fed is not None and (fed is not stream or frame.type != frames.DATA):
                    arrived, fed = fed, None
                    self._arrived(arrived)
                if stream is None:
                    self._take(frame)
                elif frame.type == frames.DATA:
                    stream.incoming.accept(frame.offset, frame.payload)
                    self.moved_bytes += len(frame.payload)
                    fed = stream
                else:
                    self._take_of(stream, frame)
        finally:
            if fed is not None:
                self._arrived(fed)

    def _take(self, frame: MuxFrame) -> None:
        if not self.is_linked:
            if frame.type == FrameType.HELLO:
                self._meet(frame.document())
            return
        match frame.type:
            case FrameType.HELLO:
                raise BadFrame("a second HELLO")
            case FrameType.OPEN:
                self._asked(frame)
            case FrameType.PING:
                self._owes_sign = True
                self.on_ready()
            case FrameType.GOAWAY:
                self.goodbye = str(frame.document().get("message"))

    def _take_of(self, stream: Stream, frame: MuxFrame) -> None:
        if frame.type == frames.CREDIT:
            self._credited(stream, frame.offset)
        elif frame.type == frames.FIN:
            stream.incoming.accept_fin(frame.offset)
            self._arrived(stream)
        else:
            self._take_word_of(stream, frame)

    def _arrived(self, stream: Stream) -> None:
        if (sink := self._sinks.get(stream.id)) is not None:
            sink.on_data()
        stream.incoming.keep()

    def _take_word_of(self, stream: Stream, frame: MuxFrame) -> None:
        match frame.type:
            case FrameType.OPENED:
                self._was_opened(stream, whole(frame.document(), "window", most=frames.WINDOW_BYTES))
            case FrameType.REFUSED:
                told = frame.document()
                self._drop(stream, str(told.get("code") or frames.FAILED), str(told.get("message") or ""))
            case FrameType.RST:
                self._drop(stream, "", "the other end was reset")

    def _asked(self, frame: MuxFrame) -> None:
        told = frame.document()
        port, window = whole(told, "port", most=65_535), whole(told, "window", most=frames.WINDOW_BYTES)
        if self._on_open is None or frame.stream in self.streams:
            return
        if frame.stream <= self._opened:
            self._post(MuxFrame(FrameType.RST, frame.stream))
            return
        self._opened = frame.stream
        stream = Stream(frame.stream, port, self._window(), is_open=False)
        stream.out.window = max(window, frames.FIRST_WINDOW_BYTES)
        self.streams[stream.id] = stream
        self._on_open(stream)

    # Meeting the other end over a new connection.

    def _meet(self, told: Mapping[str, Any]) -> None:
        """Go on with what both ends know, and give up what only one does."""
        listed = told.get("streams")
        if not isinstance(listed, list):
            raise BadFrame("a HELLO that makes no sense")
        is_same = self._peer_made in ("", str(told.get("made")))
        self._peer_made = str(told.get("made"))
        opened = whole(told, "opened", default=0)
        self._piece_bytes = max(1, min(frames.DATA_BYTES, whole(told, "payload", default=frames.PAYLOAD_BYTES)))
        entries = dict(_entry(one) for one in listed)
        self.is_linked = True
        for stream_id in entries.keys() - self.streams.keys():
            # What we were never asked for will be asked for now.
            if self._on_open is None or stream_id <= self._opened:
                self._post(MuxFrame(FrameType.RST, stream_id))
        for stream in list(self.streams.values()):
            entry = entries.get(stream.id)
            if entry is not None:
                self._go_on(stream, *entry)
            elif self._on_open is None and not (stream.was_asked and (not is_same or stream.id <= opened)):
                self._ask(stream)
            elif stream.has_both_ends:
                self._forget(stream)
            else:
                self._drop(stream, "", "the other end no longer knows the connection")
        self.on_ready()

    def _go_on(self, stream: Stream, received: int, taken: int, window: int) -> None:
        stream.out.window = max(window, frames.FIRST_WINDOW_BYTES)
        stream.out.credit(taken)
        stream.out.rewind(received)
        self._was_opened(stream, window)
        self._credited(stream, taken)

    def _ask(self, stream: Stream) -> None:
        stream.was_asked = True
        stream.out.rewind(0)
        document = {"port": stream.port, "window": stream.incoming.window}
        self._post(json_frame(FrameType.OPEN, document, stream=stream.id))
        self._queue(stream)

    # The sockets' side.

    def open(self, port: int, sink: Sink) -> Stream:
        """A new stream to a port of the sandbox; `write` and `finish` may follow at once."""
        self._opened += 1
        stream = Stream(self._opened, port, self._window(), is_open=False)
        self.streams[stream.id] = stream
        self._sinks[stream.id] = sink
        if self.is_linked:
            self._ask(stream)
        return stream

    def attach(self, stream: Stream, sink: Sink) -> None:
        """The socket of a stream that was asked for is connected."""
        self._sinks[stream.id] = sink
        stream.is_open = True
        self._post(json_frame(FrameType.OPENED, {"window": stream.incoming.window}, stream=stream.id))
        sink.on_data()

    def refuse(self, stream: Stream, code: str, message: str) -> None:
        """There is no socket for a stream that was asked for."""
        self._post(json_frame(FrameType.REFUSED, {"code": code, "message": message}, stream=stream.id))
        self._forget(stream)

    def write(self, stream: Stream, data: bytes) -> None:
        """Bytes of the socket, on their way to the other end."""
        stream.out.write(data)
        self._queue(stream)

    def finish(self, stream: Stream) -> None:
        """The socket sends nothing more."""
        stream.out.finish()
        self._queue(stream)

    def took(self, stream: Stream) -> None:
        """The socket has pulled something."""
        if stream.incoming.is_credit_due:
            self._post(MuxFrame(FrameType.CREDIT, stream.id, stream.incoming.told()[1]))
        else:
            self._untold[stream.id] = stream
        if stream.is_over:
            self._forget(stream)

    def reset(self, stream: Stream) -> None:
        """The socket broke."""
        if stream.id in self.streams:
            self._post(MuxFrame(FrameType.RST, stream.id))
            self._forget(stream)

    def reset_all(self, code: str, message: str) -> None:
        """Give up every stream."""
        for stream in list(self.streams.values()):
            self._drop(stream, code, message)

    def ping(self) -> None:
        """Ask the other end for a sign of life."""
        self._post(MuxFrame(FrameType.PING))

    @property
    def has_untaken(self) -> bool:
        """Whether a socket sent something that the other end is not known to have taken."""
        return any(stream.out.base < stream.out.end for stream in self.streams.values())

    @property
    def awaits_sign(self) -> bool:
        """Whether the other end owes us something: it was asked to connect, or sent what it has not taken."""
        return any(stream.out.is_under_way or not stream.is_open for stream in self.streams.values())

    def _was_opened(self, stream: Stream, window: int) -> None:
        stream.out.window = max(window, frames.FIRST_WINDOW_BYTES)
        if self._on_open is None:
            stream.is_open = True
        self._queue(stream)
        # Nothing else tells a socket that filled the first, small window to go on: what fits into that is too little to
        # be worth a word of credit in the window of now.
        if (sink := self._sinks.get(stream.id)) is not None:
            sink.on_credit()

    def _credited(self, stream: Stream, taken: int) -> None:
        stream.out.credit(taken)
        if stream.is_over:
            self._forget(stream)
            return
        self._queue(stream)
        if (sink := self._sinks.get(stream.id)) is not None:
            sink.on_credit()

    def _queue(self, stream: Stream) -> None:
        is_known = stream.id in self.streams
        if self.is_linked and is_known and stream.out.is_ready and not stream.is_queued:
            stream.is_queued = True
            self._ready.append(stream)
            self.on_ready()

    def _post(self, frame: MuxFrame) -> None:
        """Tell the other end; without a connection the next HELLO says as much."""
        if self.is_linked:
            self._control.append(encode(frame))
            self.on_ready()

    def _drop(self, stream: Stream, code: str, message: str) -> None:
        sink = self._sinks.get(stream.id)
        self._forget(stream)
        if sink is not None:
            sink.on_reset(code, message)

    def _forget(self, stream: Stream) -> None:
        self.streams.pop(stream.id, None)
        self._sinks.pop(stream.id, None)
        stream.out.finish()

    def _window(self) -> int:
        """What a new stream may have under way: less, the more the others have."""
        given = sum(stream.incoming.window for stream in self.streams.values())
        share = (frames.TUNNEL_WINDOW_BYTES - given) // 4
        return max(frames.FIRST_WINDOW_BYTES, min(frames.WINDOW_BYTES, share))


def _nothing() -> None:
    """Nobody carries what there is."""


def _entry(value: object) -> tuple[int, tuple[int, int, int]]:
    if not isinstance(value, list) or len(value) < 4:
        raise BadFrame("HELLO lists a stream in a way that makes no sense")
    stream_id, received, taken, window = (checked_whole(part, "streams") for part in value[:4])
    return stream_id, (received, taken, min(window, frames.WINDOW_BYTES))
