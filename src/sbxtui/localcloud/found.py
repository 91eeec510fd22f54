"""How faces find this process: `cloud.json` while it serves, and the port it had last."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbxtui.identity import ProcessIdentity
from sbxtui.localcloud.homelock import HomeLock
from sbxtui.localcloud.spec import write_private

log = logging.getLogger(__name__)

_LOOK_AFTER_S = 1.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class CloudFile:
    """What tells faces where this process serves; present only while it does.

    `path` is in the home. `spare_path` is beside the sockets, mostly on another disk: the home's may be full, and then
    nobody could reach the sandboxes whose removal frees it.
    """

    path: Path
    spare_path: Path

    def write(self, told: str) -> None:
        """Be found.

        Raises:
            OSError: There is room in neither place, or the home is gone.
        """
        try:
            write_private(self.path, told)
        except OSError as exc:
            # Whoever removed the home does not want what served it to be found by the next one there.
            if exc.errno not in _NO_ROOM:
                raise
            log.warning("cannot write %s (%s): found by %s instead", self.path, exc, self.spare_path)
            write_private(self.spare_path, told)

    def remove(self, told: str) -> None:
        """Be found no more; what another process wrote there, in a home made anew, stays."""
        for path in (self.path, self.spare_path):
            if _holds(path, told):
                path.unlink(missing_ok=True)

    def is_of_a_living_process(self) -> bool:
        """Whether somebody serves this home now."""
        return any(_is_served(path) for path in (self.path, self.spare_path))

    async def stay_found(self, told: str, lock: HomeLock) -> None:
        """Write it again when somebody lost or spoilt it: without it this process serves, and nobody finds it.

        Returns when the home was removed. One made anew in its place has keys and an authority of its own: whoever
        found this process there would trust neither its endpoints nor be known to it.
        """
        while True:
            await asyncio.sleep(_LOOK_AFTER_S)
            if not lock.is_of_home:
                log.warning("the home of this process was removed")
                return
            if any(_holds(path, told) for path in (self.path, self.spare_path)):
                continue
            log.warning("%s was lost; written again", self.path)
            try:
                self.write(told)
            except OSError as exc:
                log.error("cannot be found: %s", exc)


def remembered_port(port_file: Path) -> int:
    """The port of last time, which other clients may have been told; 0 when there was none."""
    try:
        port = int(port_file.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port < 65_536 else 0


def remember_port(port_file: Path, port: int) -> None:
    """Keep a port for the next time; on a full disk the next one may get another."""
    if remembered_port(port_file) == port:
        return
    try:
        write_private(port_file, str(port))
    except OSError as exc:
        log.warning("cannot remember the port: %s", exc)


def _is_served(path: Path) -> bool:
    try:
        told: dict[str, Any] = json.loads(path.read_text())
        return ProcessIdentity(told["pid"], told["start_ticks"], told["boot_id"]).is_alive
    except (OSError, ValueError, KeyError):
        return False


def _holds(path: Path, told: str) -> bool:
    try:
        return path.read_text() == told
    except (OSError, UnicodeDecodeError):
        return False
