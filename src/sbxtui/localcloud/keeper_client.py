"""The local cloud's side of a keeper: start one, find one again, ask it, and dial into its sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sbxtui.core.errors import Conflict, GuestUnreachable, RuntimeUnavailable, SbxError
from sbxtui.core.text import harmless
from sbxtui.localcloud.cgroups import expect_joining
from sbxtui.localcloud.copies import COPY_FOLDER
from sbxtui.localcloud.duplex import Duplex
from sbxtui.localcloud.imagetree import ensure_image_tree
from sbxtui.localcloud.keeper_kill import kill_keeper
from sbxtui.localcloud.keeper_start import open_bridge
from sbxtui.localcloud.nursery import Nursery
from sbxtui.localcloud.ownroot import LAYERS, has_own_root
from sbxtui.localcloud.runtimes.base_python import interpreter_in
from sbxtui.localcloud.runtimes.choose import choose_runtime
from sbxtui.localcloud.runtimes.gvisor_choice import digest_of
from sbxtui.localcloud.runtimes.interpreter import choose_interpreter
from sbxtui.localcloud.runtimes.own_root_probe import OwnRoot, own_root
from sbxtui.localcloud.runtimes.system_root import system_root
from sbxtui.localcloud.spec import ExitInfo, KeeperStatus, SandboxSpec, read_exit, write_private

START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 10.0
# Suspending to disk writes all of the memory.
FREEZE_TIMEOUT_S = 150.0
COPY_TIMEOUT_S = 900.0
DIAL_TIMEOUT_S = 10.0
_LOG_TAIL_BYTES = 4096
_ENDING = ("wait", "terminate")


@dataclass(frozen=True, slots=True)
class KeeperClient:
    """One sandbox's keeper. Holds no connection: every call opens its own, so any number of processes may use it at
    once.
    """

    keeper_socket: Path
    control_dir: Path
    sandbox_dir: Path

    async def status(self) -> KeeperStatus:
        """The sandbox now; from `exit.json` once the keeper is gone.

        Raises:
            GuestUnreachable: Neither a keeper nor an exit record answers.
        """
        try:
            return KeeperStatus.from_dict(await self._call({"op": "status"}))
        except GuestUnreachable:
            known = read_exit(self.sandbox_dir)
            if known is None:
                raise
            return KeeperStatus.ended(known)

    async def freeze(self) -> None:
        """Stop every process of the sandbox where it stands; it answers nothing until `thaw`. Frozen already:
        nothing happens.
        """
        await self._call({"op": "freeze"}, timeout_s=FREEZE_TIMEOUT_S)

    async def thaw(self) -> None:
        """Undo `freeze`."""
        await self._call({"op": "thaw"}, timeout_s=FREEZE_TIMEOUT_S)

    async def copy(self, target: Path) -> str:
        """Have a copy of the sandbox written, as it stands; it goes on as it was. See `copies`.

        Args:
            target: The copy's folder; what is there goes. It is on the sandbox's own disk.

        Returns:
            The copy's kind.
        """
        return str((await self._call({"op": "copy", "to": str(target)}, timeout_s=COPY_TIMEOUT_S))["kind"])

    async def fill_disk(self) -> None:
        """Have the sandbox's disk count as full, until the sandbox is saved or ends."""
        await self._call({"op": "fill"})

    async def terminate(self, grace_s: float = 2.0) -> ExitInfo:
        """End the sandbox and remove all it had but `exit.json` and `keeper.log`; returns when that is done.

        Args:
            grace_s: Seconds the guest gets after TERM before everything is killed.
        """
        try:
            reply = await self._call({"op": "terminate", "grace_s": grace_s}, timeout_s=grace_s + START_TIMEOUT_S)
        except GuestUnreachable:
            return await self.wait_exit()
        return ExitInfo(**reply)

    async def wait_exit(self) -> ExitInfo:
        """Wait, without a deadline, until the sandbox has ended and its remains are gone.

        Raises:
            GuestUnreachable: The keeper died without a record.
        """
        try:
            return ExitInfo(**await self._call({"op": "wait"}, timeout_s=None))
        except GuestUnreachable:
            known = read_exit(self.sandbox_dir)
            if known is None:
                raise
            return known

    async def dial(self, port: int) -> Duplex:
        """Connect to a port of the sandbox's own loopback; the caller closes the connection.

        Raises:
            ConnectionRefusedError: Nothing listens on that port inside.
            GuestUnreachable: The bridge does not answer (frozen, ended, or it put something else in its socket's
                place).
        """
        return await dial_bridge(self.control_dir, port)

    async def _call(self, request: Mapping[str, Any], *, timeout_s: float | None = CALL_TIMEOUT_S) -> dict[str, Any]:
        try:
            async with asyncio.timeout(timeout_s):
                reply = await _exchange(self.keeper_socket, request)
        except (OSError, ValueError, asyncio.IncompleteReadError) as exc:
            raise GuestUnreachable(
                f"the keeper at `{self.keeper_socket}` does not answer: {exc or type(exc).__name__}",
                hint="list the sandboxes again",
            ) from exc
        if "error" in reply:
            raise Conflict(f"{request['op']} was refused: {reply['error']}")
        return reply


async def start_keeper(spec: SandboxSpec) -> KeeperClient:
    """Start a detached keeper, and by it the sandbox; returns when the guest's bridge answers.

    The keeper lives on when the caller dies. Cancelling leaves it starting; `adopt_keeper` finds it.

    Raises:
        UsageError: The spec cannot be built.
        RuntimeUnavailable: The runtime is missing or refused, or the guest ended at once; the message holds the
            cause, the details the log's tail. Nothing is left running.
    """
    spec.check()
    # Meanwhile, and nobody waits for it.
    asyncio.get_running_loop().run_in_executor(None, expect_joining)
    prepared = await asyncio.to_thread(prepare, spec)
    try:
        line = await _first_words(prepared)
    except TimeoutError as exc:
        await _end_unready(prepared)
        raise _start_failure(prepared, f"its keeper said nothing for {START_TIMEOUT_S:g} s") from exc
    except OSError as exc:
        raise _start_failure(prepared, f"its keeper could not be started: {exc.strerror or exc}") from exc
    reply = json.loads(line) if line else {"error": "its keeper ended without a word"}
    if not reply.get("ready"):
        raise _start_failure(prepared, str(reply.get("error", "no reason given")))
    return KeeperClient(prepared.keeper_socket, prepared.control_dir, prepared.sandbox_dir)


async def _first_words(spec: SandboxSpec) -> bytes:
    """Start the keeper's program and wait for what it says of its sandbox, all within the one deadline."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_TIMEOUT_S
    ready_read, ready_write = os.pipe()
    try:
        await asyncio.to_thread(_spawn, spec, ready_write)
        async with asyncio.timeout_at(deadline):
            return await _read_to_end(ready_read)
    finally:
        os.close(ready_read)


async def _end_unready(spec: SandboxSpec) -> None:
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await KeeperClient(spec.keeper_socket, spec.control_dir, spec.sandbox_dir).terminate(0)
    except (TimeoutError, SbxError):
        await asyncio.to_thread(kill_keeper, spec)


async def adopt_keeper(keeper_socket: Path) -> KeeperClient | None:
    """The keeper that listens there, or None if none answers; then `spec.read_exit` may tell how its sandbox ended.

    A keeper that is still starting its sandbox answers when that is done.
    """
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            reply = await _exchange(keeper_socket, {"op": "status"})
        places = reply["spec"]
        return KeeperClient(keeper_socket, Path(places["control_dir"]), Path(places["sandbox_dir"]))
    except (OSError, ValueError, KeyError, TimeoutError):
        return None


async def dial_bridge(control_dir: Path, port: int | str) -> Duplex:
    """`KeeperClient.dial` by folder; with a word in place of the port, what else the bridge does on such a word."""
    try:
        descriptor = open_bridge(control_dir)
    except OSError as exc:
        raise GuestUnreachable(
            "the sandbox's bridge is not there", hint="it may have ended; list the sandboxes"
        ) from exc
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    duplex = Duplex(sock)
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(sock, f"/proc/self/fd/{descriptor}")
            await duplex.send(f"{port}\n".encode())
            answer = await duplex.read(1)
    except (OSError, TimeoutError) as exc:
        duplex.close()
        raise _silent() from exc
    except asyncio.CancelledError:
        duplex.close()
        raise
    finally:
        os.close(descriptor)
    if answer == b"+":
        return duplex
    duplex.close()
    if not answer:
        raise _silent()
    raise ConnectionRefusedError(f"nothing listens on port {port} in the sandbox")


def _silent() -> GuestUnreachable:
    return GuestUnreachable("the sandbox's bridge does not answer", hint="it may be suspended or overloaded")


def prepare(spec: SandboxSpec) -> SandboxSpec:
    """Settle what the sandbox is started with: guest copy, interpreter, runtime's program. Blocking.

    Raises:
        UsageError: The runtime is not known.
        RuntimeUnavailable: It does not work here.
    """
    parent = spec.image_tree_parent
    choice = choose_runtime(spec.runtime, parent)
    drops_uid = os.geteuid() == 0 and choice.runtime.needs_dropped_uid
    has_own_kernel = choice.runtime.has_own_kernel
    if spec.base_dir is not None:
        interpreter = interpreter_in(spec.base_dir, parent)
    else:
        interpreter = choose_interpreter(parent, is_uid_dropped=drops_uid)
    is_own = has_own_root(spec) or (spec.sandbox_dir / COPY_FOLDER / LAYERS).is_dir()
    root = own_root(parent) if is_own else OwnRoot()
    if root.problem:
        raise RuntimeUnavailable(f"it has a root of its own, which cannot be had here: {root.problem}")
    return replace(
        spec,
        prepared={
            "image_tree": str(ensure_image_tree(parent).path),
            "program": root.program or choice.probe.path,
            **({"program_sha256": digest_of(Path(choice.probe.path))} if has_own_kernel else {}),
            **choice.probe.how,
            "host_python": str(Path(sys.executable).resolve()),
            **interpreter.to_map(),
            **({"base": str(spec.base_dir)} if spec.base_dir is not None else {}),
            **({"system": str(system_root(parent))} if is_own and spec.base_dir is None else {}),
        },
    )


def _spawn(spec: SandboxSpec, ready_fd: int) -> None:
    """Have a keeper forked, which detaches at once. Closes `ready_fd`.

    Raises:
        TimeoutError: Nobody takes the order.
        OSError: It cannot be started.
    """
    log_fd = -1
    try:
        spec.sandbox_dir.mkdir(parents=True, exist_ok=True)
        write_private(spec.spec_file, spec.to_json())
        log_fd = os.open(spec.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _nursery.order(spec.spec_file, ready_fd, log_fd, timeout_s=START_TIMEOUT_S)
    finally:
        os.close(ready_fd)
        if log_fd >= 0:
            os.close(log_fd)


_nursery = Nursery()


def _start_failure(spec: SandboxSpec, cause: str) -> RuntimeUnavailable:
    tail = ""
    with contextlib.suppress(OSError), spec.log_file.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
        tail = harmless(file.read().decode(errors="replace"))
    return RuntimeUnavailable(
        f"sandbox `{spec.sandbox_id}` did not start with {spec.runtime}: {cause}",
        hint=f"see {spec.log_file}" if tail else "run `sbx doctor`",
        details={"log_tail": tail},
    )


async def _read_to_end(descriptor: int) -> bytes:
    """Everything said over a pipe until all its writers are gone."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    received = b""
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        while True:
            await readable.wait()
            readable.clear()
            with contextlib.suppress(BlockingIOError):
                part = os.read(descriptor, 4096)
                if not part:
                    break
                received += part
    finally:
        loop.remove_reader(descriptor)
    return received


async def _exchange(path: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        line = await reader.readline()
        if request["op"] in _ENDING:
            # The keeper itself ends behind its answer: the end of the stream says that it did.
            await reader.read()
    finally:
        writer.close()
    if not line:
        raise ConnectionResetError("the keeper closed the connection")
    reply = json.loads(line)
    if not isinstance(reply, dict):
        raise ValueError("the keeper sent no object")
    return reply
