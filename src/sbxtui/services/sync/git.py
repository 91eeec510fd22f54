"""git, where a person has it: asked about their own folder, never about anything a sandbox wrote."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from sbxtui.core.errors import SbxError, Unsupported

_TIMEOUT_S = 60.0
# Whatever the repository says: nothing of it is run.
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


class GitFailed(SbxError):
    """git refused: the folder is no repository, or has no such object."""


@dataclass(frozen=True, slots=True)
class Git:
    """git in a folder. `variables` are given to it beside the environment."""

    folder: str
    program: str
    variables: Mapping[str, str] = field(default_factory=dict)

    async def run(self, *words: str | bytes, stdin: bytes = b"") -> bytes:
        """What it prints.

        Raises:
            GitFailed: It exits with another code than 0.
        """
        code, out = await self.exit_of(*words, stdin=stdin)
        if code:
            raise GitFailed(f"git {words[0]!s} failed in {self.folder}")
        return out

    async def exit_of(self, *words: str | bytes, stdin: bytes = b"") -> tuple[int, bytes]:
        """Its exit code, and what it prints.

        Raises:
            GitFailed: It cannot be started, or does not end.
        """
        named = [f"{name}={value}" for name, value in self.variables.items()]
        try:
            process = await asyncio.create_subprocess_exec(
                *("env", *named, self.program, "-C", self.folder, *_QUIET, *words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as exc:
            raise GitFailed(f"git cannot be run: {exc.strerror}") from exc
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                out, _ = await process.communicate(stdin)
        except TimeoutError as exc:
            raise GitFailed(f"git {words[0]!s} does not end") from exc
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out


def git_of(folder: str) -> Git:
    """git in a folder.

    Raises:
        Unsupported: This machine has none.
    """
    program = shutil.which("git")
    if program is None:
        raise Unsupported("this machine has no git", hint="install git, or decide for one side, or both")
    return Git(folder, program)
