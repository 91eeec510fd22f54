"""The books of one stream: what was written, sent, received and taken, by absolute offsets. No I/O.

In both directions FIN is the byte behind the last one.
"""

from __future__ import annotations

import time
from collections import deque

from sbxguest.mux.frames import FIRST_WINDOW_BYTES, Part
from sbxguest.wire import KIB, BadFrame

# Credit is told in parts of a window: one message for each taken piece would be as many as the pieces. Where much comes
# in little time, the other end is near and larger parts keep it going.
_TELL_PARTS = 4
_TELL_PARTS_FAST = 2
_FAST_S = 0.01
# Smaller pieces that lie side by side are kept as one: each costs more than its bytes.
_SMALL_BYTES = 4 * KIB


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
        # What is kept, in the pieces it was written in; the first begins at `_start`, and what `sent` leads to is
        # `_at` pieces and `_skip` bytes further on.
        self._pieces: deque[bytes] = deque()
        self._start = 0
        self._at = 0
        self._skip = 0

    @property
    def is_full(self) -> bool:
        """Whether as much waits as the other end lets us have under way."""
        return self.end - self.base >= self.window

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
        if self.is_finished or not data:
            return
        pieces = self._pieces
        self.end += len(data)
        if pieces and len(data) < _SMALL_BYTES and len(pieces[-1]) < _SMALL_BYTES:
            if self._at == len(pieces):
                self._at, self._skip = self._at - 1, len(pieces[-1])
            pieces[-1] += data
        else:
            pieces.append(data)

    def finish(self) -> None:
        """Nothing more will be written."""
        self.is_finished = True

    def take(self, most: int) -> tuple[int, list[Part]] | None:
        """The next bytes to send, in parts, with their offset; no parts stand for FIN, None for nothing."""
        if not self.is_ready:
            return None
        at, left = self.sent, min(most, self.base + self.window - self.sent)
        parts: list[Part] = []
        while left and self._at < len(self._pieces):
            piece, skip = self._pieces[self._at], self._skip
            size = min(len(piece) - skip, left)
            parts.append(piece if size == len(piece) else memoryview(piece)[skip : skip + size])
            left -= size
            self.sent += size
            self._skip = skip + size
            if self._skip == len(piece):
                self._at, self._skip = self._at + 1, 0
        if not parts:
            self.sent += 1
        return at, parts

    def credit(self, taken: int) -> None:
        """The other end has taken what lies before.

        Raises:
            BadFrame: That was never written.
        """
        if taken > self.end + self.is_finished:
            raise BadFrame("credit for bytes that were never sent")
        if taken <= self.base:
            return
        self.base = taken
        while self._pieces and self._start + len(self._pieces[0]) <= taken:
            self._start += len(self._pieces.popleft())
            self._at -= 1
        if self.sent < taken:
            self._go_to(taken)

    def rewind(self, received: int) -> None:
        """Over a new connection: go on behind what the other end has.

        Raises:
            BadFrame: It has what was never written.
        """
        if not self.base <= received <= self.end + self.is_finished:
            raise BadFrame("a stream went on where it never was")
        self._go_to(received)

    def _go_to(self, offset: int) -> None:
        """Send what lies from there on next."""
        self.sent = offset
        self._at, self._skip = 0, min(offset, self.end) - self._start
        while self._at < len(self._pieces) and self._skip >= len(self._pieces[self._at]):
            self._skip -= len(self._pieces[self._at])
            self._at += 1


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
        self.inbox: deque[Part] = deque()
        self.has_fin = False
        self._fresh = 0
        self._told = 0
        self._told_at_s = 0.0

    @property
    def is_ended(self) -> bool:
        """Whether FIN has come and all before it has left."""
        return self.has_fin and not self.inbox

    @property
    def delivered_bytes(self) -> int:
        """How many bytes have left for the socket."""
        return self.taken - (self.has_fin and self.taken == self.received)

    def accept(self, offset: int, data: Part) -> None:
        """Take in a piece; what is here already is left out.

        Raises:
            BadFrame: Something before it is missing, or it is more than was allowed.
        """
        if offset > self.received or offset + len(data) > self.taken + self.window:
            raise BadFrame("bytes out of order, or more than the window")
        rest = data[self.received - offset :] if offset < self.received else data
        if rest and not self.has_fin:
            self.inbox.append(rest)
            self._fresh += 1
            self.received += len(rest)

    def keep(self) -> None:
        """What came since the last time and has not left lies where others will write: make it our own."""
        inbox = self.inbox
        for at in range(max(0, len(inbox) - self._fresh), len(inbox)):
            if isinstance(inbox[at], memoryview):
                inbox[at] = bytes(inbox[at])
        self._fresh = 0

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

    def pull(self) -> Part:
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
        if self.has_fin and self.taken == self.received:
            return untold > 0
        if untold < self.window // _TELL_PARTS:
            return False
        return untold >= self.window // _TELL_PARTS_FAST or time.monotonic() - self._told_at_s > _FAST_S

    def told(self) -> tuple[int, int]:
        """What the other end is told now: received and taken."""
        self._told = self.taken
        self._told_at_s = time.monotonic()
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
