"""The ways out of all sandboxes of one home: made with each sandbox, changed while it runs, gone when it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.request import getproxies_environment

from sbxtui.core.egress import NetworkPolicy, parse_network
from sbxtui.core.errors import UsageError
from sbxtui.localcloud import faults
from sbxtui.localcloud.egress.conversation import Ways
from sbxtui.localcloud.egress.detour import Detour
from sbxtui.localcloud.egress.dialing import Lookup, connect_directly
from sbxtui.localcloud.egress.gateway import Gateway
from sbxtui.localcloud.egress.keeping import SecretKeeping, described
from sbxtui.localcloud.egress.log import NetworkLog
from sbxtui.localcloud.egress.policies import PolicyStore
from sbxtui.localcloud.launches import managed_connector
from sbxtui.localcloud.records import Record
from sbxtui.localcloud.runtimes.choose import find_runtime
from sbxtui.localcloud.vms import Vm
from sbxtui.localcloud.world import World

LOG_NAME = "network.jsonl"
# A gateway asks its bridge as soon as the sandbox runs.
_BRIDGE_S = 5.0
_BRIDGE_POLL_S = 0.05


@dataclass(slots=True)
class _Member:
    vm: Vm
    gateway: Gateway


def usual_ways() -> Ways:
    """The system's resolver, and plain TCP or the proxy that the usual variables name, for one sandbox."""
    return Ways(Lookup(), connect_directly, detour=Detour(getproxies_environment()))


class Egress:
    """All gateways. `make_ways` gives each its own way to look up names and to dial."""

    def __init__(
        self,
        world: World,
        policies: PolicyStore,
        secrets: SecretKeeping,
        make_ways: Callable[[], Ways] = usual_ways,
    ) -> None:
        self._world = world
        self._policies = policies
        self._secrets = secrets
        self._make_ways = make_ways
        self._members: dict[str, _Member] = {}

    async def prepare(self, record: Record) -> None:
        """Have a sandbox that is about to be made reach what its egress connector says; without one: nothing.

        Raises:
            OSError: The disk is full or read-only.
        """
        if managed_connector(self._world.catalog.region, "INTERNET_EGRESS") in record.egress_connectors:
            await self._policies.save(record.id, parse_network("internet"))

    def serve(self, vm: Vm) -> Coroutine[Any, Any, None]:
        """Be the way out of a sandbox until it has ended; its log stays for as long as its record does.

        It can be asked for and changed from the call on, before what is returned runs.
        """
        sandbox_id = vm.record.id
        network_log = NetworkLog(self._world.sandbox_dir(sandbox_id) / LOG_NAME)
        policy = self._policies.load(sandbox_id)
        book = self._secrets.load(sandbox_id)
        gateway = Gateway(sandbox_id, self._world.control_dir(sandbox_id), policy, network_log, book)
        member = self._members[sandbox_id] = _Member(vm, gateway)
        return self._serve(member)

    async def _serve(self, member: _Member) -> None:
        if _has_own_network(member.vm):
            await member.gateway.serve(member.vm, self._make_ways())
        if member.vm.is_over:
            self._forget_kept(member.vm.record.id)

    def forget(self, sandbox_id: str) -> None:
        """The record is gone."""
        self._members.pop(sandbox_id, None)
        self._forget_kept(sandbox_id)

    def _forget_kept(self, sandbox_id: str) -> None:
        self._policies.forget(sandbox_id)
        self._secrets.forget(sandbox_id)

    def describe(self, sandbox_id: str) -> dict[str, Any]:
        """What a sandbox may reach.

        Raises:
            Fault: 404.
        """
        member = self._member(sandbox_id)
        policy = member.gateway.policy if _has_own_network(member.vm) else None
        return {
            "network": policy.text if policy else "host",
            "isEnforced": policy is not None,
            "openConnections": member.gateway.open_count,
            "lastEntry": member.gateway.log.last_seq,
        }

    async def change(self, sandbox_id: str, network: str) -> dict[str, Any]:
        """Have a policy hold from the return on; what is open and no longer allowed is cut.

        Raises:
            Fault: 400 for no policy, 404, 409 where nothing would enforce it.
        """
        member = self._member(sandbox_id)
        try:
            policy = parse_network(network)
        except UsageError as exc:
            raise faults.validation(exc.message) from exc
        await self._check_can_enforce(member, policy)
        await self._policies.save(sandbox_id, policy)
        cut = member.gateway.apply(policy)
        if member.vm.is_over:
            self._policies.forget(sandbox_id)
        member.gateway.log.add("changed", network=policy.text)
        return {**self.describe(sandbox_id), "cutConnections": cut}

    async def entries(self, sandbox_id: str, *, after: int, wait_s: float) -> dict[str, Any]:
        """The entries of a sandbox's log behind a number; waits for one if there is none yet.

        Raises:
            Fault: 404.
        """
        member = self._member(sandbox_id)
        found = await member.gateway.log.wait(after, timeout_s=wait_s)
        return {"entries": list(found), "isOver": member.vm.is_over}

    def secrets(self, sandbox_id: str) -> dict[str, Any]:
        """The secrets of a sandbox, without their values.

        Raises:
            Fault: 404.
        """
        return {"secrets": [described(secret) for secret in self._member(sandbox_id).gateway.secrets.all()]}

    async def give_secret(self, sandbox_id: str, key: str, told: dict[str, Any]) -> dict[str, Any]:
        """Give a secret, or change one; see `SecretKeeping.give`.

        Raises:
            Fault: 400 for what cannot be one, 404, 409 where nothing would put it in.
        """
        member = self._member(sandbox_id)
        self._check_has_own_network(member)
        await self._check_has_way_out(member)
        return await self._secrets.give(member.vm, member.gateway, key, told)

    async def take_back_secret(self, sandbox_id: str, key: str) -> dict[str, Any]:
        """Take one back; see `SecretKeeping.take_back`.

        Raises:
            Fault: 404.
        """
        member = self._member(sandbox_id)
        return await self._secrets.take_back(member.vm, member.gateway, key)

    async def _check_can_enforce(self, member: _Member, policy: NetworkPolicy) -> None:
        self._check_has_own_network(member)
        if policy.words or policy.is_internet:
            await self._check_has_way_out(member)

    def _check_has_own_network(self, member: _Member) -> None:
        sandbox_id = member.vm.record.id
        if not _has_own_network(member.vm):
            message = f"MicroVM {sandbox_id} shares this machine's network: its runtime isolates nothing"
            raise faults.conflict(message, "MicroVM", sandbox_id)
        if member.vm.state.is_gone:
            raise faults.conflict(f"MicroVM {sandbox_id} is {member.vm.state}", "MicroVM", sandbox_id)

    async def _check_has_way_out(self, member: _Member) -> None:
        deadline = asyncio.get_running_loop().time() + _BRIDGE_S
        while member.gateway.has_bridge is None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_BRIDGE_POLL_S)
        if member.gateway.has_bridge is False:
            sandbox_id = member.vm.record.id
            message = f"The guest of MicroVM {sandbox_id} has no way out: it is of an older sbx, or its port is taken"
            raise faults.conflict(message, "MicroVM", sandbox_id)

    def _member(self, sandbox_id: str) -> _Member:
        member = self._members.get(sandbox_id)
        if member is None:
            raise faults.not_found(f"MicroVM not found: {sandbox_id}", "MicroVM", sandbox_id)
        return member


def _has_own_network(vm: Vm) -> bool:
    return find_runtime(vm.record.runtime).has_own_network
