"""The main process of a built image inside its sandbox: a job of the guest, which stands beside it."""

from __future__ import annotations

import json

from sbxtui.localcloud.guestcalls import GuestCalls
from sbxtui.localcloud.hooks import Dial
from sbxtui.localcloud.program import GUEST_PORT, Program

JOB = "main"


async def start_program(dial: Dial, program: Program) -> None:
    """Start it, unless it runs already: a copy of a sandbox with its memory goes on with it.

    Raises:
        GuestRefused: It cannot be started.
        GuestUnreachable: The guest does not answer.
    """
    job = {
        "id": JOB,
        "argv": list(program.argv),
        "env": dict(program.env),
        "cwd": program.workdir,
        "label": "main process",
        **({"user": program.user} if program.user else {}),
    }
    await GuestCalls(dial, GUEST_PORT).ask("POST", "/v2/jobs", json.dumps(job).encode())
