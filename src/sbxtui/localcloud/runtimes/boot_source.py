"""First program in a sandbox: limits itself, starts the bridge, becomes the guest's init. Copied into the image tree.

    python3 -I -S -B sbxboot.py NPROC BRIDGE_SOCKET

Runs alone inside the sandbox: it imports nothing but the standard library until it hands over to `sbxguest.init`.
"""

from __future__ import annotations

import os
import resource
import runpy
import sys

# Restarts the bridge for as long as init lives; the loop ends with the sandbox.
_BRIDGE_LOOP = 'while :; do "$@"; sleep 0.2; done'


def main(argv: list[str]) -> None:
    """Never returns: the process becomes init."""
    # No pathlib: this program is part of every start.
    tree = __file__.rpartition("/")[0]
    tasks = int(argv[1])
    if tasks:
        # Set inside the user namespace, where it counts the tasks of this sandbox alone.
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))
    bridge = [sys.executable, "-I", "-S", "-B", f"{tree}/sbxguest/bridge.py", argv[2]]
    os.posix_spawn("/bin/sh", ["/bin/sh", "-c", _BRIDGE_LOOP, "sbxguest-bridge", *bridge], os.environ)
    sys.path.insert(0, tree)
    sys.argv = ["sbxguest.init"]
    runpy.run_module("sbxguest.init", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv)
