"""Copies and secrets of a cloud in memory, behind the shape of the services that make and keep them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sbxtui.core.errors import NotFound
from sbxtui.core.model import Registration
from sbxtui.services.plan import CreateOptions
from sbxtui.services.secrets import SecretState
from sbxtui.services.snapshots import Snapshot


def snapshot(name: str, sandbox: str = "api") -> Snapshot:
    """One of 20 MiB with processes in it."""
    return Snapshot(name, "memory", "sbx-base", "gVisor", sandbox, f"mvm-{sandbox}", datetime.now(UTC), 20 << 20)


class FakeCopies:
    """Snapshots; what is made of them and of sandboxes is what `make` makes of a name."""

    def __init__(self, make: Callable[[str | None], Registration]) -> None:
        self.there = [snapshot("before")]
        self._make = make

    async def list(self) -> Sequence[Snapshot]:
        return self.there

    async def find(self, name: str) -> Snapshot:
        return next(one for one in self.there if one.name == name)

    async def create(self, row: Registration, name: str | None = None) -> Snapshot:
        self.there.append(snapshot(name or f"{row.name}-1", row.name))
        return self.there[-1]

    async def fork(
        self, row: Registration, name: str | None, options: CreateOptions, *, on_progress: Callable[[str], None]
    ) -> Registration:
        on_progress(f"launching {name}")
        return self._make(name)

    async def restore(
        self, snapshot: Snapshot, name: str | None, options: CreateOptions, *, on_progress: Callable[[str], None]
    ) -> Registration:
        on_progress(f"launching {name}")
        return self._make(name)


class FakeSecrets:
    """Secrets of all sandboxes; `values` are by key."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[str, tuple[str, ...]]] = {"TOKEN": ("t0ken", ("api.example.com:443",))}

    async def list(self, row: Registration) -> Sequence[SecretState]:
        return [SecretState(key, f"sbx-{key}", places) for key, (_, places) in self.values.items()]

    async def set(self, row: Registration, key: str, value: str, hosts: Sequence[str] = ()) -> SecretState:
        self.values[key] = (value, tuple(hosts))
        return SecretState(key, f"sbx-{key}", tuple(hosts))

    async def remove(self, row: Registration, key: str) -> SecretState:
        if key not in self.values:
            raise NotFound(f"`{row.name}` has no secret `{key}`")
        return SecretState(key, "", self.values.pop(key)[1])
