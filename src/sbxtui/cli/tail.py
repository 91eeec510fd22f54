"""The last lines of a job's log, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from sbxtui.core.jobs import JobOutput

# Twice what a guest keeps of a log.
_MAX_BYTES = 16 << 20


class LastLines:
    """Takes pieces of a log in order, and keeps those that its last `count` lines begin in, at most 16 MiB."""

    def __init__(self, count: int, *, max_bytes: int = _MAX_BYTES) -> None:
        self._count = count
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._pieces: deque[JobOutput] = deque()
        self._newlines = 0

    def add(self, piece: JobOutput) -> None:
        """One more piece; what can no longer be among the last lines is let go."""
        self._pieces.append(piece)
        self._newlines += piece.data.count(b"\n")
        self._size_bytes += len(piece.data)
        while self._pieces and self._is_surplus(self._pieces[0]):
            gone = self._pieces.popleft().data
            self._newlines -= gone.count(b"\n")
            self._size_bytes -= len(gone)

    def _is_surplus(self, oldest: JobOutput) -> bool:
        return self._newlines - oldest.data.count(b"\n") > self._count or self._size_bytes > self._max_bytes

    def clear(self) -> None:
        """What came before is followed by a gap: it is not among the last lines."""
        self._pieces.clear()
        self._newlines = self._size_bytes = 0

    def pieces(self) -> Iterator[JobOutput]:
        """The last lines; a last line without its newline counts as one."""
        if not self._pieces or self._count <= 0:
            return
        # The newline that ends the log ends its last line and begins none.
        surplus = self._newlines - self._count + (not self._pieces[-1].data.endswith(b"\n"))
        for piece in self._pieces:
            data, cursor = piece.data, piece.cursor
            while surplus > 0 and data:
                at = data.find(b"\n") + 1
                if not at:
                    data = b""
                    break
                data, cursor, surplus = data[at:], cursor + at, surplus - 1
            if data:
                yield JobOutput(cursor, piece.channel, data)
