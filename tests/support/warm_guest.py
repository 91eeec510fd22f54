"""A guest that serves one test after another, as long as each leaves a guest that can be made as it was."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import httpx

from tests.support.guest_process import GuestProcess, answering_guest, end_guest, launch_guest


class WarmGuest:
    """Starting a guest costs more than most tests of it; no more than one runs at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guest: GuestProcess | None = None
        self._server_pid = 0

    async def take(self) -> GuestProcess:
        """A guest without jobs, shells and files."""
        if self._guest is None:
            self._starts += 1
            folder = self._folder / str(self._starts)
            self._process = launch_guest(folder)
            try:
                self._guest = await answering_guest(self._process, folder)
                self._server_pid = self._guest.server_pid
            except BaseException:
                self.end()
                raise
        return self._guest

    def give_back(self) -> None:
        """Take away what the test left, or the guest, if the test did something to it that a new one would not have."""
        try:
            is_good_as_new = self._guest is not None and self._clean(self._guest)
        except (OSError, LookupError, httpx.HTTPError):
            is_good_as_new = False
        if not is_good_as_new:
            self.end()

    def _clean(self, guest: GuestProcess) -> bool:
        if guest.server_pid != self._server_pid:
            return False
        with httpx.Client(base_url=guest.url, timeout=10) as http:
            names = [shell["name"] for shell in http.get("/v2/shells").json()["shells"]]
            ids = [job["id"] for job in http.get("/v2/jobs").json()["jobs"]]
            for path in (*(f"/v2/shells/{name}" for name in names), *(f"/v2/jobs/{job_id}" for job_id in ids)):
                http.delete(path).raise_for_status()
            http.put("/v2/launch", json={}).raise_for_status()
        for folder in (guest.workdir, guest.workdir.with_name("home")):
            shutil.rmtree(folder)
            folder.mkdir()
        return True

    def end(self) -> None:
        """End the guest, if one runs."""
        if self._process is not None:
            end_guest(self._process)
        self._process = self._guest = None
