"""A sandbox's files, whole and in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sbxtui import arguments
from sbxtui.api.opened import Opened

_PIECE_BYTES = 1 << 20


class Files(Opened):
    """A sandbox whose files can be read and written."""

    async def read_file(self, path: str) -> bytes:
        """All of a file, in memory. `sbx cp` copies what is too large for that.

        Raises:
            FileMissing: There is no such file.
        """
        content = bytearray()
        await self._services.files.read(self._row, path, content.extend)
        return bytes(content)

    async def write_file(self, path: str, content: str | bytes) -> int:
        """Replace a file, whole or not at all; text becomes UTF-8. Returns its size in bytes.

        Raises:
            FileMissing: Its folder does not exist. UsageError: It is neither text nor bytes.
        """
        return await self._services.files.write(self._row, path, _pieces(arguments.content(content)))


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), _PIECE_BYTES):
        yield data[start : start + _PIECE_BYTES]
