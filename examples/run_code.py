"""Run a line of Python in a sandbox made for it: `python examples/run_code.py` prints `Hello from a microVM!`."""

from __future__ import annotations

import asyncio
import sys

from sbxtui import Sandbox

CODE = "print('Hello from a microVM!')"


async def main() -> int:
    """Make a sandbox, run the line, end the sandbox; the line's exit code is ours."""
    async with await Sandbox.create(memory=512) as sandbox:
        ran = await sandbox.exec("python3", ["-c", CODE], timeout=30)
        sys.stdout.write(ran.stdout_text)
        sys.stderr.write(ran.stderr_text)
        return ran.exit_code


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
