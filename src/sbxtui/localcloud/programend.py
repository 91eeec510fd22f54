"""What ends with the program of its image: on the platform the main process of a sandbox is the sandbox."""

from __future__ import annotations

import asyncio

from sbxtui.core.errors import GuestUnreachable
from sbxtui.localcloud.guestcalls import GuestCalls, GuestRefused, exit_code
from sbxtui.localcloud.program import GUEST_PORT
from sbxtui.localcloud.programs import JOB
from sbxtui.localcloud.vms import Vm

_WAIT_S = 20
_RETRY_S = 0.5


async def end_with_program(vm: Vm) -> None:
    """End a sandbox when the program of its image has ended; returns when it has ended, by whatever cause."""
    if vm.record.program is None or not vm.record.program.argv:
        return
    guest = GuestCalls(vm.dial_inside, GUEST_PORT)
    while not vm.is_over:
        try:
            async with asyncio.timeout(2 * _WAIT_S):
                job = await guest.ask("GET", f"/v2/jobs/{JOB}?wait_s={_WAIT_S}")
        except (GuestUnreachable, GuestRefused, TimeoutError, OSError):
            # It has not begun yet, or sleeps.
            await asyncio.sleep(_RETRY_S)
            continue
        if job.get("exit"):
            await vm.terminate(f"Container Stopped with Exit Code: {exit_code(job['exit'])}", has_hook=False)
            return
