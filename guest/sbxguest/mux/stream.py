"""The books of one stream: what was written, sent, received and taken, by absolute offsets. No I/O.

In both directions FIN is the byte behind the last one.
"""

from __future__ import annotations

from collections import deque

from sbxguest.mux.frames import DATA_BYTES, FIRST_WINDOW_BYTES
from sbxguest.wire import BadFrame

# Credit is told in parts of a window: one message for each taken piece would be as many as the pieces.
_TELL_PARTS = 4


class Outgoing:
    """What goes to the other end; kept until that has taken it.

    Attributes:
        base: The other end has taken what lies before.
        sent: What lies before was sent over the present connection, or had arrived over an earlier one.
        end: Of what was written, FIN not counted.
    """

    def __init__(self) -> None:
        self.base = 0
        self.sent = 0
        self.end = 0
        self.window = FIRST_WINDOW_BYTES
        self.is_finished = False
        self._kept = bytearray()

    @property
    def is_full(self) -> bool:
        """Whether as much waits as the other end lets us have under way."""
        return len(self._kept) >= self.window

    @property
    def is_under_way(self) -> bool:
        """Whether something was sent that the other end has not taken."""
        return self.sent > self.base

    @property
    def is_ready(self) -> bool:
        """Whether something can be sent now."""
        if self.sent < self.end:
            return self.sent < self.base + self.window
        return self.is_finished and self.sent == self.end

    @property
    def is_taken(self) -> bool:
        """Whether the other end has it all, FIN included."""
        return self.is_finished and self.base > self.end

    def write(self, data: bytes) -> None:
        """Add bytes; what comes behind `finish` is dropped."""
        if not self.is_finished:
            self._kept += data
            self.end += len(data)

    def finish(self) -> None:
        """Nothing more will be written."""
        self.is_finished = True

    def take(self) -> tuple[int, bytes] | None:
        """The next piece to send with its offset; empty bytes stand for FIN, None for nothing."""
        if not self.is_ready:
            return None
        at = self.sent
        start = at - self.base
        data = bytes(memoryview(self._kept)[start : start + min(DATA_BYTES, self.window - start)])
        self.sent = at + (len(data) or 1)
        return at, data

    def credit(self, taken: int) -> None:
        """The other end has taken what lies before.

        Raises:
            BadFrame: That was never written.
        """
        if taken > self.end + self.is_finished:
            raise BadFrame("credit for bytes that were never sent")
        if taken > self.base:
            del self._kept[: taken - self.base]
            self.base = taken
            self.sent = max(self.sent, taken)

    def rewind(self, received: int) -> None:
        """Over a new connection: go on behind what the other end has.

        Raises:
            BadFrame: It has what was never written.
        """
        if not self.base <= received <= self.end + self.is_finished:
            raise BadFrame("a stream went on where it never was")
        self.sent = received


class Incoming:
    """What comes from the other end.

    Attributes:
        received: What lies before is here.
        taken: What lies before has left for the socket.
        inbox: Pieces that are here and have not left.
    """

    def __init__(self, window: int) -> None:
        self.received = 0
        self.taken = 0
        self.window = window
        self.inbox: deque[bytes] = deque()
        self.has_fin = False
        self._told = 0

    @property
    def is_ended(self) -> bool:
        """Whether FIN has come and all before it has left."""
        return self.has_fin and not self.inbox

    @property
    def delivered_bytes(self) -> int:
        """How many bytes have left for the socket."""
        return self.taken - (self.has_fin and self.taken == self.received)

    def accept(self, offset: int, data: bytes) -> None:
        """Take in a piece; what is here already is left out.

        Raises:
            BadFrame: Something before it is missing, or it is more than was allowed.
        """
        if offset > self.received or offset + len(data) > self.taken + self.window:
            raise BadFrame("bytes out of order, or more than the window")
        rest = data[self.received - offset :]
        if rest and not self.has_fin:
            self.inbox.append(rest)
            self.received += len(rest)

    def accept_fin(self, offset: int) -> None:
        """The other end's bytes end at `offset`.

        Raises:
            BadFrame: They do not.
        """
        if self.has_fin:
            return
        if offset != self.received:
            raise BadFrame("an end in the wrong place")
        self.has_fin = True
        self.received += 1

    def pull(self) -> bytes:
        """The next piece to leave for the socket."""
        data = self.inbox.popleft()
        self.taken += len(data)
        return data

    def pull_fin(self) -> None:
        """The end has left for the socket."""
        self.taken = self.received

    @property
    def is_credit_due(self) -> bool:
        """Whether what was taken is worth a message of its own: a part of the window, or the end."""
        untold = self.taken - self._told
        is_over = self.has_fin and self.taken == self.received
        return untold > 0 and (is_over or untold >= self.window // _TELL_PARTS)

    def told(self) -> tuple[int, int]:
        """What the other end is told now: received and taken."""
        self._told = self.taken
        return self.received, self.taken


class Stream:
    """One stream of a tunnel, seen from one end.

    Attributes:
        is_open: The end that was asked has connected.
        was_asked: OPEN was sent over some connection.
    """

    def __init__(self, stream_id: int, port: int, window: int, *, is_open: bool) -> None:
        self.id = stream_id
        self.port = port
        self.out = Outgoing()
        self.incoming = Incoming(window)
        self.is_open = is_open
        self.was_asked = is_open
        self.is_queued = False

    @property
    def is_over(self) -> bool:
        """Whether both directions have ended and both ends know it."""
        incoming = self.incoming
        return self.out.is_taken and incoming.has_fin and incoming.taken == incoming.received

    @property
    def has_both_ends(self) -> bool:
        """Whether FIN was written and FIN has come."""
        return self.out.is_finished and self.incoming.has_fin
