"""What a build says, a line at a time with its instant, in a file that CloudWatch Logs shows as a stream."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

MAX_BYTES = 16 << 20


class BuildLog:
    """Written as it comes, up to `MAX_BYTES`; close it. Output without an end of line waits for one."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._left = b""
        self._size = 0

    def say(self, words: str) -> None:
        """A line of the build itself, or of what ran."""
        if self._size > MAX_BYTES:
            return
        self._size += len(words)
        if self._size > MAX_BYTES:
            words = f"the log ends here: it is larger than {MAX_BYTES >> 20} MiB"
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._file.write(f"{now} {words}\n")
        self._file.flush()

    def output(self, data: bytes) -> None:
        """Output of a command."""
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            self.say(line.decode("utf-8", "replace").rstrip("\r"))

    def end_output(self) -> None:
        """The command has ended, whether its last line has or not."""
        if self._left:
            self.say(self._left.decode("utf-8", "replace"))
        self._left = b""

    def close(self) -> None:
        """Nothing more is said."""
        self._file.close()
