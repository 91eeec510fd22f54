"""Binary messages of a WebSocket that carries little else, cut out of its bytes and put into them.

A library's parser goes through a generator for every part of a frame, which costs a small message more than the rest
of its way together. It keeps handshakes, pings and closes: what is no binary message is handed to it as it came, in
whole frames. Not imported with its package: a guest needs it when the first tunnel comes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence

from sbxguest.mux.frames import COPIED_BYTES, Part
from sbxguest.wire import MAX_MESSAGE_BYTES

try:
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask

_FIN, _BINARY, _MASKED = 0x80, 0x02, 0x80
_MESSAGES = frozenset({_FIN | _BINARY, _BINARY, 0x00, _FIN})
_TWO, _EIGHT = 126, 127
_HEAD = struct.Struct(">BB")
_HEAD_TWO = struct.Struct(">BBH")
_HEAD_EIGHT = struct.Struct(">BBQ")
_KEY_BYTES = 4
# A key that changes nothing, so that neither end goes through the bytes for it.
PLAIN_KEY = bytes(_KEY_BYTES)


def new_key() -> bytes:
    """A key for one message, that nobody can foretell."""
    return os.urandom(_KEY_BYTES)


def framed(parts: Sequence[Part], key: bytes = b"") -> list[Part]:
    """The frame of one binary message, in parts; clients mask theirs by a key."""
    size, mask = sum(map(len, parts)), _MASKED if key else 0
    if size < _TWO:
        head = _HEAD.pack(_FIN | _BINARY, mask | size)
    elif size < 1 << 16:
        head = _HEAD_TWO.pack(_FIN | _BINARY, mask | _TWO, size)
    else:
        head = _HEAD_EIGHT.pack(_FIN | _BINARY, mask | _EIGHT, size)
    if not key or key == PLAIN_KEY:
        return [head + key, *parts]
    if size < COPIED_BYTES:
        return [b"".join((head, key, apply_mask(b"".join(parts), key)))]
    # Large parts are not copied for it.
    pieces: list[Part] = [head + key]
    for part in parts:
        pieces.append(apply_mask(part, key))
        key = _turned(key, len(part))
    return pieces


def _turned(key: bytes, by: int) -> bytes:
    """The key of what follows so many bytes."""
    at = by % _KEY_BYTES
    return key[at:] + key[:at] if at else key


class MessageReader:
    """Cuts what comes into frames. Where one message ends and the next begins is lost: what it carries has an order.

    Args:
        is_masked: Whether it comes from a client.
        on_other: Gets each whole frame that is of no binary message, and all that follows what no peer of ours sends.

    Attributes:
        on_bytes: Gets what binary messages carry as it comes, and raises nothing; it lies where others will write soon.
            While it is None, `on_other` gets their frames, too.
    """

    def __init__(self, *, is_masked: bool, on_other: Callable[[bytes], None]) -> None:
        self.on_bytes: Callable[[Part], None] | None = None
        self._mask = _MASKED if is_masked else 0
        self._on_other = on_other
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._wanted_bytes = 0
        self._left_bytes = 0
        self._key = PLAIN_KEY
        self._is_foreign = False

    def feed(self, data: Part) -> None:
        """Take what came; heads wait for their rest, and so do frames of others."""
        at = self._complete(data) if self._held else 0
        while at < len(data) and not self._is_foreign:
            size = self._pass(data, at) if self._left_bytes else self._cut(data, at)
            if not size:
                break
            at += size
        if at == len(data):
            return
        rest = bytes(data[at:])
        if self._is_foreign:
            self._on_other(rest)
        else:
            self._hold(rest)

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)

    def _complete(self, data: Part) -> int:
        """Give what is held the bytes it lacks, and no more: those behind need not be copied. How many that were."""
        at = 0
        while self._held and at < len(data):
            lacking = bytes(data[at : at + self._wanted_bytes - self._held_bytes])
            at += len(lacking)
            self._hold(lacking)
            if self._held_bytes < self._wanted_bytes:
                break
            whole = b"".join(self._held)
            self._held.clear()
            self._held_bytes = 0
            if self._cut(whole, 0):
                continue
            if self._is_foreign:
                self._on_other(whole)
            else:
                # More of its head is here, and tells how long it is.
                self._hold(whole)
        return at

    def _cut(self, data: Part, at: int) -> int:
        """Take the head of the frame at `at`, and the whole frame if it is another's; how much that was.

        0 where not enough of it is here, or no peer of ours sends it.
        """
        here = len(data) - at
        if here < _HEAD.size:
            self._wanted_bytes = _HEAD.size
            return 0
        first, second = data[at], data[at + 1]
        size, head_bytes = second & ~_MASKED, _HEAD.size
        if size >= _TWO:
            shape = _HEAD_TWO if size == _TWO else _HEAD_EIGHT
            if here < shape.size:
                self._wanted_bytes = shape.size
                return 0
            size, head_bytes = shape.unpack_from(data, at)[2], shape.size
        if size > MAX_MESSAGE_BYTES or second & _MASKED != self._mask:
            self._is_foreign = True
            return 0
        if self._mask:
            head_bytes += _KEY_BYTES
        is_ours = self.on_bytes is not None and first in _MESSAGES
        taken = head_bytes if is_ours else head_bytes + size
        if taken > here:
            self._wanted_bytes = taken
            return 0
        at += head_bytes
        if not is_ours:
            self._on_other(bytes(data[at - head_bytes : at + size]))
            return taken
        self._left_bytes = size
        if self._mask:
            self._key = bytes(data[at - _KEY_BYTES : at])
        return taken + self._pass(data, at)

    def _pass(self, data: Part, at: int) -> int:
        """Hand on what is here of a frame of ours; how much that was."""
        payload = data[at : at + self._left_bytes]
        if not payload:
            return 0
        size = len(payload)
        self._left_bytes -= size
        if self._key != PLAIN_KEY:
            payload = apply_mask(payload, self._key)
            if self._left_bytes:
                self._key = _turned(self._key, size)
        # Nobody listens any more when a connection is about to be closed.
        if self.on_bytes is not None:
            self.on_bytes(payload)
        return size
