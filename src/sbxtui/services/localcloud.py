"""Looking after the local cloud: what it is, how other clients reach it, stopping and resetting it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sbxtui.control.api import ControlApi
from sbxtui.control.local import LocalCloud, find_local_cloud, without_aws
from sbxtui.core.errors import RuntimeUnavailable, SbxError, StoreUnwritable, TimedOut
from sbxtui.core.model import Context, Phase, SandboxState
from sbxtui.core.text import harmless_line
from sbxtui.home import Home
from sbxtui.identity import identity_of
from sbxtui.roots import system_roots_pem
from sbxtui.store.registry import Registry

_STOP_DEADLINE_S = 20.0
_END_DEADLINE_S = 30.0
_FORGET_DEADLINE_S = 5.0
_POLL_S = 0.05
_SET_UP_DEADLINE_S = 600.0
_ANSWER_BYTES = 64 * 1024
# The services whose calls the local cloud answers, as AWS clients name them in their variables.
_SERVICES = ("LAMBDA_MICROVMS", "LAMBDA_CORE", "S3", "CLOUDWATCH_LOGS", "STS")
# A line of each shell, and how it writes what would end the quotes: a home's path may hold any character.
_SHELLS = {
    "sh": ("export {key}='{value}'", str.maketrans({"'": "'\\''"})),
    "fish": ("set -gx {key} '{value}'", str.maketrans({"\\": "\\\\", "'": "\\'"})),
    "powershell": ("$env:{key} = '{value}'", str.maketrans({"'": "''"})),
    "cmd": ("set {key}={value}", {}),
}


def client_environment(home: Home, cloud: LocalCloud) -> dict[str, str]:
    """The variables with which any AWS client drives this local cloud instead of AWS.

    Writes the bundle of certificate authorities (the system's and ours) that they point to.
    """
    bundle = str(_write_bundle(home, cloud.ca_file))
    return {
        **{f"AWS_ENDPOINT_URL_{service}": cloud.endpoint_url for service in _SERVICES},
        # Some operations' hosts have a prefix, and no resolver knows a loopback address with one.
        "AWS_DISABLE_HOST_PREFIX_INJECTION": "true",
        "AWS_ACCESS_KEY_ID": cloud.credentials.access_key_id,
        "AWS_SECRET_ACCESS_KEY": cloud.credentials.secret_access_key,
        "AWS_SESSION_TOKEN": "",
        "AWS_REGION": cloud.region,
        "AWS_DEFAULT_REGION": cloud.region,
        "AWS_CA_BUNDLE": bundle,
        "SSL_CERT_FILE": bundle,
        "REQUESTS_CA_BUNDLE": bundle,
        "NODE_EXTRA_CA_CERTS": bundle,
    }


def shell_lines(variables: Mapping[str, str], shell: str) -> list[str]:
    """Lines that set `variables` in a shell: sh, fish, powershell or cmd."""
    line, escapes = _SHELLS[shell]
    return [line.format(key=key, value=value.translate(escapes)) for key, value in variables.items()]


async def stop(home: Home) -> bool:
    """Stop serving; sandboxes live on under their keepers. False when none served.

    Raises:
        TimedOut: It does not end.
    """
    cloud = find_local_cloud(home)
    if cloud is None:
        return False
    # Its file goes before its sockets do: only the end of the process says that its ports are free.
    process = identity_of(cloud.pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(cloud.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_DEADLINE_S):
            while process.is_alive:
                await asyncio.sleep(_POLL_S)
    except TimeoutError as exc:
        raise TimedOut(f"the local cloud (pid {cloud.pid}) does not end", hint=f"kill -9 {cloud.pid}") from exc
    return True


async def forget_ended(home: Home, plane: ControlApi) -> int:
    """Let the local cloud go of records and folders of sandboxes that have ended; else it keeps them for a day.

    Returns:
        How many there were. They are gone on return, or will be in a moment.
    """
    ended = await ended_ids(plane)
    cloud = find_local_cloud(home)
    if not ended or cloud is None:
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(cloud.pid, signal.SIGUSR2)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FORGET_DEADLINE_S):
            while ended & await ended_ids(plane):
                await asyncio.sleep(_POLL_S)
    return len(ended)


async def ended_ids(plane: ControlApi) -> set[str]:
    """Sandboxes that have ended and are still told of."""
    return {one.id for one in await plane.list() if one.state is SandboxState.TERMINATED}


async def set_up(home: Home, runsc: Path | None, say: Callable[[str], None]) -> dict[str, str]:
    """Set gVisor up for the sandboxes of `home`: the only call that fetches anything. Needs no root.

    Args:
        home: Whose local cloud. It is stopped, if one serves, so that the next sandbox uses what was set up.
        runsc: A program to use instead of fetching one.
        say: Told what is being done, a line at a time.

    Returns:
        `path`, `version`, `age`, `platform`, `sha256` and `source` of the runsc in use.

    Raises:
        RuntimeUnavailable: None could be had that starts every time; what was set up before stays.
        TimedOut: It took too long, or the local cloud does not stop.
    """
    if sys.platform != "linux":
        raise RuntimeUnavailable("gVisor needs Linux", hint="use an AWS context")
    command = [sys.executable, "-P", "-m", "sbxtui.localcloud.setup"]
    command += ["--images", str(home.trees_dir / ".images"), "--cache", str(home.cache_dir)]
    command += ["--runsc", str(runsc.absolute())] if runsc else []
    try:
        async with asyncio.timeout(_SET_UP_DEADLINE_S):
            told = answer_of(await _run_telling(command, say))
    except TimeoutError as exc:
        raise TimedOut(
            f"gVisor was not set up within {_SET_UP_DEADLINE_S:g} s", hint="see that the network is up, and try again"
        ) from exc
    await stop(home)
    return told


def answer_of(said: bytes) -> dict[str, str]:
    """What the program that sets up said on stdout.

    Raises:
        RuntimeUnavailable: It failed, or said nothing of use.
    """
    try:
        told: dict[str, object] = dict(json.loads(said))
    except (ValueError, TypeError, RecursionError):
        told = {"error": harmless_line(said.decode(errors="replace").strip(), limit=200) or "it ended without a word"}
    if "error" in told or "path" not in told:
        words = harmless_line(str(told.get("error", "it named no program")))
        raise RuntimeUnavailable(f"gVisor was not set up: {words}", hint=harmless_line(str(told.get("hint", ""))))
    return {str(key): harmless_line(str(value)) for key, value in told.items()}


async def _run_telling(command: Sequence[str], say: Callable[[str], None]) -> bytes:
    """Run a program, telling its lines on stderr as they come; what it said on stdout. Cancelled, it is killed."""
    with tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=said,
            stderr=asyncio.subprocess.PIPE,
            env=without_aws(dict(os.environ)),
        )
        try:
            while process.stderr is not None and (line := await process.stderr.readline()):
                say(harmless_line(line.decode(errors="replace").strip()))
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        said.seek(0)
        return said.read(_ANSWER_BYTES)


async def reset(home: Home, context: Context, plane: ControlApi, registry: Registry, actor: str) -> list[str]:
    """End every local sandbox, forget their names, stop the local cloud and delete all it kept.

    Returns:
        Ids of the sandboxes that were ended.

    Raises:
        TimedOut: A sandbox does not end; nothing was deleted.
    """
    ended = [one.id for one in await plane.list() if not one.state.is_gone]
    for sandbox_id in ended:
        await plane.terminate(sandbox_id)
    await _wait_until_gone(plane)
    # On a full disk the names can go only once what is deleted made room.
    with contextlib.suppress(StoreUnwritable):
        await asyncio.to_thread(_forget_names, registry, context, actor)
    await stop(home)
    await asyncio.to_thread(_delete_keeping_set_up, home)
    await asyncio.to_thread(_delete_sockets, home)
    await asyncio.to_thread(_forget_names, registry, context, actor)
    return list(ended)


def _forget_names(registry: Registry, context: Context, actor: str) -> None:
    for row in registry.list(context.name):
        if row.phase is Phase.UNKNOWN:
            continue
        registry.remove(row.context, row.name, actor=actor, reason="local reset")


async def _wait_until_gone(plane: ControlApi) -> None:
    try:
        async with asyncio.timeout(_END_DEADLINE_S):
            while any(one.state.value != "TERMINATED" for one in await plane.list()):
                await asyncio.sleep(_POLL_S)
    except TimeoutError as exc:
        raise TimedOut("a local sandbox does not end; nothing was deleted", hint="`sbx ls` shows which") from exc


def _delete_keeping_set_up(home: Home) -> None:
    """What `set_up` settled on stays known: it is no sandbox's, and fetching it again would need the network."""
    pointer = home.trees_dir / ".images" / "runsc.json"
    settled = pointer.read_text() if pointer.is_file() else ""
    for folder in (home.local_dir, home.trees_dir):
        _delete(folder)
    if settled:
        pointer.parent.mkdir(mode=0o711, parents=True)
        pointer.write_text(settled)


def _delete(folder: Path) -> None:
    def fail(function: object, path: str, info: tuple[type[BaseException], BaseException, object]) -> None:
        if not isinstance(info[1], FileNotFoundError):
            raise SbxError(f"cannot delete {path}: {info[1]}") from info[1]

    shutil.rmtree(folder, onerror=fail)


def _delete_sockets(home: Home) -> None:
    """Delete what sandboxes left in the socket folder, and the folder itself unless somebody listens there."""
    if not home.socket_dir.is_dir():
        return
    for entry in home.socket_dir.iterdir():
        if entry != home.bells_dir and entry.is_dir() and not entry.is_symlink():
            _delete(entry)
        elif entry != home.bells_dir:
            entry.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        home.bells_dir.rmdir()
    with contextlib.suppress(OSError):
        home.socket_dir.rmdir()


def _write_bundle(home: Home, ca_file: Path) -> Path:
    parts = [system_roots_pem(), ca_file.read_text()]
    bundle = home.local_dir / "ca-bundle.pem"
    temporary = bundle.with_suffix(f".{os.getpid()}")
    temporary.write_text("\n".join(parts))
    temporary.replace(bundle)
    return bundle
