"""The process: one per home by lock, `cloud.json` while it serves, gone when nothing needs it.

SIGTERM ends it and sandboxes live on; SIGUSR1 drains it: no new sandboxes, and it ends with the last one; SIGUSR2 makes
it forget what has ended. A home that is removed ends it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import logging.handlers
import os
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from sbxtui._version import __version__
from sbxtui.core.errors import SbxError
from sbxtui.home import private_dir
from sbxtui.identity import own_identity
from sbxtui.localcloud import cgroups
from sbxtui.localcloud.account import ACCOUNT_ID, REGION
from sbxtui.localcloud.ca import server_context
from sbxtui.localcloud.egress.keeping import SecretKeeping
from sbxtui.localcloud.egress.policies import PolicyStore
from sbxtui.localcloud.egress.routes import NetworkApi
from sbxtui.localcloud.egress.service import Egress
from sbxtui.localcloud.egress.vault import Vault
from sbxtui.localcloud.endpoints import EndpointFactory
from sbxtui.localcloud.fleet import Fleet
from sbxtui.localcloud.found import remember_port, remembered_port
from sbxtui.localcloud.golden_shelf import clear_trials
from sbxtui.localcloud.homelock import HomeLock, hold_home
from sbxtui.localcloud.keeper_sweep import sweep
from sbxtui.localcloud.keys import HomeKeys, load_or_make_keys
from sbxtui.localcloud.options import Options, parse_options
from sbxtui.localcloud.runtimes.choose import Choice, choose_runtime
from sbxtui.localcloud.runtimes.gvisor_probe import build_age
from sbxtui.localcloud.server import App
from sbxtui.localcloud.shop import Shop
from sbxtui.localcloud.sigv4 import Verifier
from sbxtui.localcloud.snapshot_routes import PREFIX as SNAPSHOTS
from sbxtui.localcloud.snapshot_routes import SnapshotApi
from sbxtui.localcloud.snapshots import SnapshotStore
from sbxtui.localcloud.world import World

log = logging.getLogger(__name__)

GRACEFUL_S = 3
MAX_DURATION_S = 28_800
# Two descriptors a relayed connection; the usual 1024 would end at a few busy sandboxes.
OPEN_FILES = 16_384
_LOG_BYTES = 5 << 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to end or not needed.

    Returns:
        0 at an orderly end, also when another process of the home serves already; 1 with a line on stderr otherwise.
    """
    options = parse_options(sys.argv[1:] if argv is None else argv)
    # What a person exported for AWS must never reach a sandbox or steer botocore here.
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    _settle_limits()
    try:
        # A sandbox's own uid must get through the folders above its tree, so they are made before the umask closes.
        options.trees.mkdir(mode=0o711, parents=True, exist_ok=True)
        os.umask(0o077)
        for directory in (options.local_dir, options.sockets, options.logs):
            _make_own(directory)
        _log_to(options.logs / "localcloud.log")
        lock_file = options.local_dir / "cloud.lock"
        with hold_home(lock_file, options.cloud_file.is_of_a_living_process) as lock:
            if lock is None:
                log.info("another process serves this home; nothing to do")
            else:
                asyncio.run(_serve(options, lock))
        return 0
    except (OSError, SbxError) as exc:
        log.error("the local cloud cannot run: %s", exc)
        sys.stderr.write(f"error: the local cloud cannot run: {exc}\n")
        return 1


def _make_own(directory: Path) -> None:
    """A folder of ours, or none: in a shared one somebody else may have made it first, with sockets of theirs in it.

    One that others may only pass through stays so: the uid of a sandbox that is being started is on its way.
    """
    with contextlib.suppress(FileNotFoundError):
        found = directory.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o066:
            return
    private_dir(directory)


class _Server(uvicorn.Server):
    """Signals are ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Lifetime:
    """When the process ends: told to, or idle for long enough with no sandbox."""

    def __init__(self, exit_when_idle_s: float) -> None:
        self.stop = asyncio.Event()
        self._exit_when_idle_s = exit_when_idle_s
        self._used_at = time.monotonic()

    def touch(self) -> None:
        """Somebody asked something."""
        self._used_at = time.monotonic()

    async def watch(self, fleet: Fleet) -> None:
        """Set `stop` when nothing needs this process any more."""
        while not self.stop.is_set():
            if fleet.live_count:
                self.touch()
            elif fleet.is_draining or (self._exit_when_idle_s and self._idle_s >= self._exit_when_idle_s):
                self.stop.set()
                return
            wait_s = 1.0 if fleet.live_count else max(0.05, min(1.0, self._exit_when_idle_s - self._idle_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self.stop.wait()

    @property
    def _idle_s(self) -> float:
        return time.monotonic() - self._used_at


async def _serve(options: Options, lock: HomeLock) -> None:
    keys = load_or_make_keys(options.local_dir / "keys.json")
    context, ca_file = server_context(options.local_dir / "ca")
    choice = await asyncio.to_thread(_choose, options)
    # Before anything is adopted: what killed keepers left is gone, and how their sandboxes ended is written down.
    snapshots = _snapshots(options)
    await asyncio.to_thread(snapshots.sweep)
    await asyncio.to_thread(sweep, options.trees, options.sockets)
    shop = Shop(options, keys)
    world = shop.world(choice, snapshots)
    await asyncio.to_thread(clear_trials, world)
    lifetime = _Lifetime(options.exit_when_idle_s)
    listening = _listen(options)
    egress = _egress(options, world)
    endpoints = EndpointFactory(context, keys, shop.rehearsal, options.has_ceilings)
    async with Fleet(world, endpoints.open, egress, snapshots) as fleet:
        _install_signals(lifetime, fleet)
        verifier = Verifier(keys.access_key_id, keys.secret_access_key, REGION)
        services = shop.services(fleet, world, {SNAPSHOTS: SnapshotApi(fleet.origins), "/": NetworkApi(egress)})
        app = App(services, verifier, ACCOUNT_ID, lifetime.touch)
        serving = asyncio.create_task((server := _Server(_uvicorn_config(app))).serve(sockets=[listening]))
        told = _told(options, keys, listening.getsockname()[1], ca_file, choice)
        options.cloud_file.write(told)
        log.info("serving on port %d with runtime %s", listening.getsockname()[1], choice.runtime.id)
        try:
            await _first_of(
                serving,
                asyncio.create_task(lifetime.stop.wait()),
                asyncio.create_task(lifetime.watch(fleet)),
                asyncio.create_task(options.cloud_file.stay_found(told, lock)),
            )
        finally:
            options.cloud_file.remove(told)
            server.should_exit = True
            await serving
            await shop.close()
    _leave_no_groups(options, fleet)
    log.info("ended; sandboxes live on with their keepers")


def _egress(options: Options, world: World) -> Egress:
    secrets = SecretKeeping(Vault(options.local_dir / "secrets"))
    return Egress(world, PolicyStore(options.local_dir / "network"), secrets)


def _snapshots(options: Options) -> SnapshotStore:
    # Trees may be shared by homes; the folder of a home's sockets is its own.
    copies_dir = options.trees / ".snapshots" / str(options.sockets).strip("/").replace("/", "-")
    return SnapshotStore(options.local_dir / "snapshots", copies_dir)


def _leave_no_groups(options: Options, fleet: Fleet) -> None:
    if fleet.live_count == 0 and os.geteuid() == 0:
        cgroups.remove_folder(cgroups.folder_of(options.sockets))


def _choose(options: Options) -> Choice:
    choice = choose_runtime(options.runtime, options.trees / ".images")
    for reason in choice.passed_over:
        log.warning("a stronger isolation does not work here: %s", reason)
    return choice


def _uvicorn_config(app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=GRACEFUL_S,
    )


async def _first_of(*tasks: asyncio.Task[Any]) -> None:
    """Return when the first ends (its error is raised), with the others but the first-named cancelled."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks[1:]:
        task.cancel()
    for task in done:
        task.result()


def _install_signals(lifetime: _Lifetime, fleet: Fleet) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lifetime.stop.set)

    def drain() -> None:
        fleet.is_draining = True

    loop.add_signal_handler(signal.SIGUSR1, drain)
    loop.add_signal_handler(signal.SIGUSR2, fleet.forget_ended)


def _listen(options: Options) -> socket.socket:
    """The API's port: the one asked for, else the one of last time if it is free, else any."""
    port_file = options.local_dir / "port"
    wanted = [options.port] if options.port else [remembered_port(port_file), 0]
    for port in wanted:
        # asyncio sets TCP_NODELAY only where the protocol is named; without it small answers wait 40 ms for an ACK.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
            listening.listen(512)
        except OSError:
            listening.close()
            if port == wanted[-1]:
                raise
            continue
        remember_port(port_file, listening.getsockname()[1])
        return listening
    raise AssertionError("the last port raises")


def _told(options: Options, keys: HomeKeys, port: int, ca_file: Path, choice: Choice) -> str:
    """What `cloud.json` says."""
    identity = own_identity()
    told = {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "region": REGION,
        "account_id": ACCOUNT_ID,
        "pid": identity.pid,
        "start_ticks": identity.start_ticks,
        "boot_id": identity.boot_id,
        "version": __version__,
        "ca_file": str(ca_file),
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
        "runtime": choice.runtime.id,
        "isolation": choice.runtime.isolation,
        "runtime_version": choice.probe.version,
        "runtime_age": build_age(choice.probe.version) if choice.runtime.has_own_kernel else "",
        "passed_over": list(choice.passed_over),
        "passed_over_has_fault": choice.has_fault,
        "time_scale": options.time_scale,
        "mode": "conformance" if options.is_conformant else "comfort",
        "account_size": options.account_size,
        "has_ceilings": options.has_ceilings,
        "lag_s": options.lag_s,
    }
    return json.dumps(told)


def _settle_limits() -> None:
    # This process knows secrets, and a core file would hold them. Who is started here may raise it again.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _log_to(path: Path) -> None:
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=2)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
