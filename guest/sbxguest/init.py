"""The main process of a sandbox: reaps, keeps the fd store, starts every job's shim, restarts the server.

On the platform the end of the main process ends the sandbox, so this one stays tiny, has one thread and never waits for
anybody but its poll. The server may be killed at any time; init holds the listening sockets, so that not even a
connection is refused meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any, NoReturn

from sbxguest import descriptors, kernel, shim
from sbxguest.fdstore import KEPT, Entry, FdStore
from sbxguest.link import Link, make_pair

_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 5.0
_STABLE_S = 10.0
_STOP_S = 3.0
_OOM_SCORE = -900
# Forking a shim costs more than most jobs do: so many wait for the next ones while a crowd runs, and a few for good.
_IDLE_SHIMS_MAX = 8
_IDLE_SHIMS_KEPT = 2
_QUIET_S = 3.0
# What the server is told of the environment.
_SETTINGS = ("AGENTD_", "SBX_", "PATH", "AWS_LAMBDA_MICROVM_")


def main() -> NoReturn:
    """Run until SIGTERM or SIGINT; then end every job and exit 0. Exits 1 if a port is taken."""
    env = dict(os.environ)
    try:
        sockets = [_listen(env.get("AGENTD_BIND", ""), int(env.get("AGENTD_PORT") or 8080))]
        if env.get("SBX_HOOKS") == "1":
            sockets.append(_listen(env.get("AGENTD_BIND", ""), int(env.get("AGENTD_HOOK_PORT") or 9000)))
    except (OSError, ValueError) as exc:
        _say(f"cannot listen: {exc}")
        sys.exit(1)
    kernel.become_subreaper()
    kernel.close_memory()
    kernel.set_oom_score(_OOM_SCORE)
    _raise_open_files()
    _Init(sockets, env).run()
    sys.exit(0)


def _raise_open_files() -> None:
    """Several descriptors a job are kept here and in the server; jobs themselves get the usual limit back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shim.job_open_files = soft
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _say(text: str) -> None:
    print(f"{_stamp()} sbxguest: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the sandbox's own log


def _stamp() -> str:
    """This moment, as every line of the sandbox's output begins that is the guest's own."""
    now_s = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now_s))}.{int(now_s * 1000) % 1000:03d}Z"


def _listen(address: str, port: int) -> socket.socket:
    """A listening socket: on `address`, else on every address of both families, else of IPv4."""
    if address:
        sock = _bound(socket.AF_INET6 if ":" in address else socket.AF_INET, address, port)
    else:
        try:
            sock = _bound(socket.AF_INET6, "::", port)
        except OSError:
            sock = _bound(socket.AF_INET, "0.0.0.0", port)
    _say(f"listening on port {sock.getsockname()[1]}")
    return sock


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((address, port))
        sock.listen(512)
    except OSError:
        sock.close()
        raise
    return sock


class _Shim:
    """A forked shim as init sees it; `entry` is the job it serves now."""

    __slots__ = ("entry", "link", "pid")

    def __init__(self, link: Link, pid: int) -> None:
        self.link = link
        self.pid = pid
        self.entry: Entry | None = None


class _Init:
    """The loop. Every child is the server, a shim, or an orphan of a shim that was killed."""

    def __init__(self, sockets: list[socket.socket], env: dict[str, str]) -> None:
        self._sockets = sockets
        self._env = {**env, "SBX_BOOT_ID": os.urandom(16).hex()}
        self._store = FdStore()
        self._server: Link | None = None
        self._server_pid = 0
        self._server_started_s = 0.0
        self._backoff_s = _BACKOFF_MIN_S
        self._restart_at_s = 0.0
        self._shims: dict[int, _Shim] = {}
        self._idle_shims: list[_Shim] = []
        self._wants_prefork = True
        self._lost_shims: set[int] = set()
        self._is_hunting = False
        self._is_stopping = False
        self._poll = select.poll()
        self._wakeup, wakeup_w = os.pipe()
        for fd in (self._wakeup, wakeup_w):
            os.set_blocking(fd, False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(wakeup_w, warn_on_full_buffer=False)
        self._poll.register(self._wakeup, select.POLLIN)

    def run(self) -> None:
        """Serve until told to stop."""
        while not self._is_stopping:
            if not self._server_pid and time.monotonic() >= self._restart_at_s:
                self._start_server()
            self._watch_server()
            ready = dict(self._poll.poll(self._poll_timeout_ms()))
            if not ready and self._wants_prefork:
                self._prefork()
                continue
            if not ready:
                self._let_surplus_go()
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeup, 512)
            self._serve_server()
            for fd in [fd for fd in ready if fd in self._shims]:
                self._serve_shim(fd)
            self._reap()
            if self._is_hunting:
                self._hunt()
        self._stop()

    def _poll_timeout_ms(self) -> int | None:
        if not self._server_pid:
            return max(0, int((self._restart_at_s - time.monotonic()) * 1000) + 1)
        if self._wants_prefork:
            return 0
        return int(_QUIET_S * 1000) if len(self._idle_shims) > _IDLE_SHIMS_KEPT else None

    def _prefork(self) -> None:
        """With nothing else to do, fork a shim ahead: the next job then does not wait for it."""
        self._wants_prefork = False
        with contextlib.suppress(OSError):
            self._idle_shims.append(self._fork_shim())

    def _on_signal(self, number: int, _frame: object) -> None:
        self._is_stopping = self._is_stopping or number in (signal.SIGTERM, signal.SIGINT)

    # -- the server ---------------------------------------------------------------------------------------------------

    def _start_server(self) -> None:
        try:
            ours, theirs = make_pair()
        except OSError as exc:
            _say(f"cannot start the server: {exc}")
            self._plan_restart()
            return
        fds = [theirs.fileno(), *(sock.fileno() for sock in self._sockets)]
        # The package may have been put on the path by hand, and -I drops it; the server gets the path init has.
        code = f"import sys; sys.path[:] = {sys.path!r}; from sbxguest.server import main; main({fds[0]}, {fds[1:]})"
        flags = ["-I", "-S"] if sys.flags.no_site else ["-I"]
        try:
            process = subprocess.Popen(
                [sys.executable, *flags, "-c", code], env=self._env, pass_fds=fds, stdin=subprocess.DEVNULL
            )
        except OSError as exc:
            _say(f"cannot start the server: {exc}")
            ours.close()
            self._plan_restart()
            return
        finally:
            theirs.close()
        process.returncode = 0  # `_reap` is the one place that waits
        self._server_pid = process.pid
        self._server_started_s = time.monotonic()
        self._server = Link(ours)
        self._poll.register(ours, select.POLLIN)
        settings = {name: text for name, text in self._env.items() if name.startswith(_SETTINGS)}
        self._server.post({"op": "settings", "env": settings})
        self._store.replay(self._server)

    def _plan_restart(self) -> None:
        now_s = time.monotonic()
        was_stable = self._server_started_s and now_s - self._server_started_s > _STABLE_S
        self._backoff_s = _BACKOFF_MIN_S if was_stable else min(self._backoff_s * 2, _BACKOFF_MAX_S)
        self._restart_at_s = now_s + self._backoff_s

    def _lose_server(self, status: int) -> None:
        _say(f"the server ended ({os.waitstatus_to_exitcode(status)}); starting it again")
        self._server_pid = 0
        if self._server is not None:
            self._poll.unregister(self._server.sock)
            self._server.close()
            self._server = None
        self._plan_restart()

    def _tell(self, message: dict[str, Any]) -> None:
        if self._server is not None:
            self._server.post(message)

    def _serve_server(self) -> None:
        server = self._server
        if server is None:
            return
        for message, fds in server.receive():
            self._handle(message, fds)
        server.flush()
        if server.is_closed:
            # It may hang on without its link; without one it is of no use.
            self._poll.modify(server.sock, 0)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._server_pid, signal.SIGKILL)

    def _watch_server(self) -> None:
        """Before each wait: what was posted since the last one, to a server that starts too, may not have fitted."""
        server = self._server
        if server is not None and not server.is_closed:
            self._poll.modify(server.sock, select.POLLIN | (select.POLLOUT if server.has_pending else 0))

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        key = str(message.get("job", ""))
        match message["op"]:
            case "spawn":
                self._spawn(key, message["fds"], fds)
            case "signal":
                self._signal(key, message)
            case "drop":
                for dropped, names in message["drops"]:
                    self._store.drop(dropped, names)
            case "unput":
                self._store.unput(str(message["name"]))
            case "put":
                if fds:
                    self._store.put(str(message["name"]), fds[0])
                else:
                    _say(f"no descriptor is free to keep `{message['name']}`")

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def _spawn(self, key: str, names: list[str], received: list[int]) -> None:
        if len(received) != len(names):
            # The kernel leaves out what this process has no number for; the other end cannot know.
            descriptors.close_all(received)
            entry = self._store.add(key, {})
            self._tell(self._store.note(entry, {"op": "failed", "stage": "spawn", "errno": errno.EMFILE}))
            return
        fds = dict(zip(names, received, strict=True))
        entry = self._store.add(key, {name: fds.pop(name) for name in KEPT if name in fds})
        try:
            chosen = self._idle_shims.pop() if self._idle_shims else self._fork_shim()
        except OSError as exc:
            descriptors.close_all(fds.values())
            self._tell(self._store.note(entry, {"op": "failed", "stage": "spawn", "errno": exc.errno}))
            return
        chosen.entry = entry
        entry.shim = chosen.link
        chosen.link.post({"op": "spawn", "fds": list(fds)}, list(fds.values()), closes_fds=True)
        self._wants_prefork = not self._idle_shims

    def _fork_shim(self) -> _Shim:
        ours, theirs = make_pair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            shim.run(Link(theirs))
        theirs.close()
        made = _Shim(Link(ours), pid)
        self._shims[ours.fileno()] = made
        self._poll.register(ours, select.POLLIN)
        return made

    def _serve_shim(self, fd: int) -> None:
        served = self._shims[fd]
        for message, _fds in served.link.receive():
            entry = served.entry
            if entry is None:
                continue
            self._tell(self._store.note(entry, message))
            if message["op"] == "empty":
                entry.shim = served.entry = None
                self._retire(served)
        served.link.flush()
        if served.link.is_closed and fd in self._shims:
            self._lose_shim(fd, served)

    def _retire(self, served: _Shim) -> None:
        """Keep a shim that has no job for the next one, or let it end."""
        if len(self._idle_shims) < _IDLE_SHIMS_MAX:
            self._idle_shims.append(served)
            self._wants_prefork = False
            return
        self._let_go(served)

    def _let_surplus_go(self) -> None:
        """After a quiet moment: what waits for a crowd of jobs takes memory for nothing."""
        while len(self._idle_shims) > _IDLE_SHIMS_KEPT:
            self._let_go(self._idle_shims.pop())

    def _let_go(self, idle: _Shim) -> None:
        """A shim whose link closes ends."""
        fd = idle.link.sock.fileno()
        self._poll.unregister(fd)
        del self._shims[fd]
        idle.link.close()

    def _lose_shim(self, fd: int, lost: _Shim) -> None:
        self._poll.unregister(fd)
        del self._shims[fd]
        lost.link.close()
        if lost in self._idle_shims:
            self._idle_shims.remove(lost)
        if lost.entry is not None:
            lost.entry.shim = None
            self._lost_shims.add(lost.pid)
            self._is_hunting = True
            for message in self._store.note_loss(lost.entry):
                self._tell(message)

    def _signal(self, key: str, message: dict[str, Any]) -> None:
        entry = self._store.jobs.get(key)
        if entry is not None and entry.shim is not None:
            entry.shim.post({"op": "signal", "sig": message["sig"], "to": message["to"]})

    # -- children -----------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._lost_shims.discard(pid)
            if pid == self._server_pid:
                self._lose_server(status)

    def _hunt(self) -> None:
        """After a shim was killed: what it left has no parent but us, and ends. Its children come with its own end."""
        known = {self._server_pid, *(known.pid for known in self._shims.values())}
        strays = [pid for pid, (parent, _group, _state) in kernel.parents().items() if parent == os.getpid()]
        strays = [pid for pid in strays if pid not in known]
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._is_hunting = bool(strays or self._lost_shims)

    def _stop(self) -> None:
        """End the server, then every job: a shim whose link closes kills its job's whole tree."""
        if self._server_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._server_pid, signal.SIGTERM)
        for running in self._shims.values():
            running.link.close()
        deadline_s = time.monotonic() + _STOP_S
        while time.monotonic() < deadline_s:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.005)
            except ChildProcessError:
                return


if __name__ == "__main__":
    main()
