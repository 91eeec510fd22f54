"""First program in a sandbox: parent of the guest's init and of the bridge. Copied into the image tree.

    python3 -I -S -B sbxboot.py NPROC BRIDGE_SOCKET

Runs alone inside the sandbox and imports next to nothing, as it is part of every start. The sandbox ends when init
ends; a bridge that ends is started again.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time

_RESTART_PAUSE_S = 0.2


def main(argv: list[str]) -> int:
    """Returns init's exit code, 128+n when signal n ended it; the forked init never comes back from here."""
    tree = __file__.rpartition("/")[0]
    tasks = int(argv[1])
    if tasks:
        # Set inside the user namespace, where it counts the tasks of this sandbox alone.
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))
    bridge = [sys.executable, "-I", "-S", "-B", f"{tree}/sbxguest/bridge.py", argv[2]]
    if os.environ.get("SBX_OWN_KERNEL") == "1":
        # A kernel of its own: nobody outside sees its processes, so their limits are kept from in here.
        import runpy

        sys.path.insert(0, tree)
        sys.argv = ["sbxguest.innerboot", *bridge]
        runpy.run_module("sbxguest.innerboot", run_name="__main__", alter_sys=True)
    bridge_pid = _start_bridge(bridge)
    init_pid = os.fork()
    if init_pid == 0:
        _become_init(tree)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(init_pid, number))
    while True:
        pid, status = os.wait()
        if pid == init_pid:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        if pid == bridge_pid:
            time.sleep(_RESTART_PAUSE_S)
            bridge_pid = _start_bridge(bridge)


def _start_bridge(command: list[str]) -> int:
    while True:
        try:
            return os.posix_spawn(command[0], command, os.environ)
        except OSError as exc:
            # A full task table passes; without its bridge the sandbox would be lost.
            sys.stderr.write(f"sbxguest: no bridge: {exc}\n")
            time.sleep(_RESTART_PAUSE_S)


def _become_init(tree: str) -> None:
    # Imported here: the parent needs none of it.
    import runpy

    sys.path.insert(0, tree)
    sys.argv = ["sbxguest.init"]
    runpy.run_module("sbxguest.init", run_name="__main__", alter_sys=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
