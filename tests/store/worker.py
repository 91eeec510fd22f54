"""What the other processes of the store's tests do: `python -m tests.store.worker STATE_DIR ACTION ARGUMENT…`.

A worker says `ready`, waits for a line on stdin, acts, and prints one JSON document.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import random
import resource
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sbxtui.core.errors import NameTaken, SandboxNotFound, StoreError
from sbxtui.core.model import EndpointToken, LaunchRequest, SandboxId, SandboxRecord, SandboxState
from sbxtui.home import Home
from sbxtui.identity import own_identity
from sbxtui.store.db import Store
from sbxtui.store.doorbell import Listener
from sbxtui.store.registry import Registry
from sbxtui.store.tokens import get_or_mint

ARN = "arn:aws:lambda:local-1:000000000000:microvm-image:sbx-base"


def home_at(state_dir: str) -> Home:
    """The home of a test."""
    root = Path(state_dir).parent
    return Home(root / "config", Path(state_dir), root / "cache", root / "logs")


def record(sandbox_id: str) -> SandboxRecord:
    """A running sandbox of that id."""
    return SandboxRecord(
        id=SandboxId(sandbox_id),
        state=SandboxState.RUNNING,
        endpoint="127.0.0.1:4000",
        image_arn=ARN,
        image_version="1.0",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        max_duration_s=28_800,
    )


def open_only(home: Home) -> object:
    """Open the store and count its names."""
    store = Store.open(home)
    return {"names": len(Registry(store).list()), "notice": store.notice is not None}


def open_five(home: Home) -> object:
    """Open the store five times at the same moment."""
    together = threading.Barrier(5)

    def open_one(_: int) -> object:
        together.wait(30)
        return open_only(home)

    with ThreadPoolExecutor(5) as pool:
        return list(pool.map(open_one, range(5)))


def lock_alone(home: Home) -> object:
    """Whether no other process holds the lock that SQLite shares between all who have a file open."""
    shared_first, shared_size = 0x40000002, 510
    with home.store_file.open("r+b") as stream:
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB, shared_size, shared_first)
        except OSError:
            return {"alone": False}
    return {"alone": True}


def reserve(home: Home, name: str) -> object:
    """Try to get one name."""
    registry = Registry(Store.open(home))
    try:
        registry.reserve(
            context="local",
            name=name,
            request=LaunchRequest(ARN),
            client_token=str(own_identity()),
            owner=str(own_identity()),
            actor="worker",
        )
    except NameTaken:
        return {"won": False}
    return {"won": True}


def churn(home: Home, number: str, steps: str) -> object:
    """Create, rename and remove among few names; returns what this worker believes it owns in the end."""
    registry = Registry(Store.open(home))
    choose = random.Random(int(number))
    names = [f"box-{index}" for index in range(24)]
    mine: dict[str, str] = {}
    counts = {"created": 0, "renamed": 0, "removed": 0, "refused": 0}
    for step in range(int(steps)):
        action = choose.choice(("create", "create", "rename", "remove"))
        name = choose.choice(names)
        try:
            if action == "create" or not mine:
                _create(registry, name, f"microvm-{number}-{step}", mine)
                counts["created"] += 1
            elif action == "rename":
                old = choose.choice(sorted(mine))
                registry.rename("local", old, name, actor=number)
                mine[name] = mine.pop(old)
                counts["renamed"] += 1
            else:
                old = choose.choice(sorted(mine))
                registry.remove("local", old, actor=number, reason="test")
                del mine[old]
                counts["removed"] += 1
        except NameTaken:
            counts["refused"] += 1
    return {"mine": mine, "counts": counts}


def _create(registry: Registry, name: str, sandbox_id: str, mine: dict[str, str]) -> None:
    registry.reserve(
        context="local",
        name=name,
        request=LaunchRequest(ARN),
        client_token=sandbox_id,
        owner=str(own_identity()),
        actor="worker",
    )
    registry.bind("local", name, record(sandbox_id), actor="worker", client_token=sandbox_id)
    mine[name] = sandbox_id


def hang_in_transaction(home: Home, name: str) -> object:
    """Begin a change, say so, and never finish it."""
    with Store.open(home).transaction() as transaction:
        transaction.execute("DELETE FROM registrations WHERE name = ?", (name,))
        print("inside", flush=True)  # noqa: T201 - the test waits for this line
        sys.stdin.readline()
    return {}


def take_over(home: Home) -> object:
    """Try to become the owner of every dead launch."""
    registry = Registry(Store.open(home))
    launches = registry.dead_launches("local")
    taken = [launch.name for launch in launches if registry.take_over(launch, str(own_identity()))]
    return {"taken": taken}


def rename_many(home: Home, count: str) -> object:
    """Make that many changes."""
    registry = Registry(Store.open(home))
    for number in range(int(count)):
        registry.set_labels("local", "calm-otter", {"n": str(number)}, actor="worker")
    return {}


def mint(home: Home, mint_log: str) -> object:
    """Ask for a token as eight tools would at once; every real mint leaves a line in `mint_log`."""
    return asyncio.run(_mint(home, Path(mint_log)))


async def _mint(home: Home, mint_log: Path) -> object:
    store = Store.open(home)

    async def ask_control_plane() -> EndpointToken:
        with mint_log.open("a") as log:
            log.write("minted\n")
        # Long enough for all the others to arrive meanwhile: they must wait, not mint.
        async with Listener(home) as listener:
            await listener.wait(0.4)
        now = datetime.now(UTC)
        return EndpointToken(SandboxId("microvm-1"), (8080,), f"secret-{own_identity()}", now, now + timedelta(hours=1))

    token = await get_or_mint(
        store, "local", SandboxId("microvm-1"), (8080,), owner=str(own_identity()), mint=ask_control_plane
    )
    return {"value": token.value}


def mint_and_hang(home: Home) -> object:
    """Become the minter and never come back."""
    return asyncio.run(_mint_and_hang(home))


async def _mint_and_hang(home: Home) -> object:
    async def ask_control_plane() -> EndpointToken:
        print("inside", flush=True)  # noqa: T201 - the test waits for this line
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    await get_or_mint(
        Store.open(home), "local", SandboxId("microvm-1"), (8080,), owner=str(own_identity()), mint=ask_control_plane
    )
    return {}


def listen(home: Home) -> object:
    """Wait for a change somebody else makes, without ever polling."""
    return asyncio.run(_listen(home))


async def _listen(home: Home) -> object:
    async with Listener(home, poll_s=3_600) as listener:
        print("inside", flush=True)  # noqa: T201 - the test waits for this line
        is_woken = await listener.wait(30)
    try:
        Registry(Store.open(home)).get("local", "calm-otter")
    except SandboxNotFound:
        return {"woken": is_woken, "saw": False}
    return {"woken": is_woken, "saw": True}


def adopt_one(home: Home) -> object:
    """Add a row where that cannot be; returns what the error says."""
    try:
        Registry(Store.open(home)).adopt("local", "late-lynx", record("microvm-x"), actor="worker")
    except StoreError as exc:
        return {"message": exc.message, "hint": exc.hint}
    raise AssertionError("it could be written")


def fill_until_full(home: Home, limit_bytes: str = "") -> object:
    """Add rows until one is refused, with a limit on file sizes if given; then look at what is left, and reopen."""
    if limit_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit_bytes), resource.RLIM_INFINITY))
    store = Store.open(home)
    added, error = _fill(Registry(store))
    after = len(Registry(store).list())
    store.close()
    again = Store.open(home)
    return {
        "added": added,
        "after": after,
        "kept": len(Registry(again).list()),
        "notice": again.notice is not None,
        "message": error.message,
        "hint": error.hint,
    }


def _fill(registry: Registry) -> tuple[int, StoreError]:
    for number in range(10_000):
        labels = {"filler": "x" * 20_000}
        try:
            registry.adopt("local", f"box-{number}", record(f"microvm-{number}"), labels=labels, actor="worker")
        except StoreError as exc:
            return number, exc
    raise AssertionError("it never was full")


ACTIONS: dict[str, Callable[..., object]] = {
    action.__name__: action
    for action in (
        *(
            open_only,
            open_five,
            lock_alone,
            reserve,
            churn,
            hang_in_transaction,
            take_over,
            rename_many,
            mint,
            mint_and_hang,
            listen,
        ),
        *(adopt_one, fill_until_full),
    )
}


def main() -> None:
    """Run one action when told to."""
    state_dir, action, *arguments = sys.argv[1:]
    print("ready", flush=True)  # noqa: T201 - the protocol of this process
    sys.stdin.readline()
    print(json.dumps(ACTIONS[action](home_at(state_dir), *arguments)), flush=True)  # noqa: T201 - same


if __name__ == "__main__":
    main()
