"""Forwards of one context's sandboxes, for every face: made, acted on, listed, ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial

from sbxtui.core.errors import AddressInUse, NotFound, SbxError, StoreError, TimedOut, Unsupported
from sbxtui.core.model import Registration, SandboxState
from sbxtui.guest.tunnel import TunnelState
from sbxtui.home import Home
from sbxtui.identity import own_identity
from sbxtui.services.forward.listeners import Bound, bind_all
from sbxtui.services.forward.model import KIND, ForwardSpec, ForwardStatus, Mode
from sbxtui.services.forward.port import Port
from sbxtui.services.forward.sharedways import OnState, Shared, SharedWays
from sbxtui.services.forward.ways import TunnelWay, Way
from sbxtui.services.guests import Guests, speaks_v1
from sbxtui.services.ports import OpenPort, Ports
from sbxtui.services.runnerctl import start_runner
from sbxtui.services.sync.beside import beside
from sbxtui.store.doorbell import Listener
from sbxtui.store.links import Link, Links, Wanted

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_PORTS_EVERY_S = 5.0
_START_TIMEOUT_S = 20.0
_POLL_S = 0.05

OnTrouble = Callable[[str], None]


class Forwards:
    """The forwards of one context's sandboxes."""

    def __init__(self, home: Home, guests: Guests, links: Links, ports: Ports, actor: str) -> None:
        self._home = home
        self._guests = guests
        self._links = links
        self._ports = ports
        self._actor = actor

    def all(self, context: str | None = None) -> list[Link]:
        """Every forward, or those of a context, by sandbox and port; not those that ended with their process."""
        return [link for link in self._links.list(KIND, context) if link.is_detached or link.is_served]

    def of(self, row: Registration, ports: Sequence[int] = ()) -> list[Link]:
        """The forwards of a sandbox, or those of some ports of this machine.

        Raises:
            NotFound: There are none, or one of the ports is not forwarded.
        """
        found = [link for link in self.all(row.context) if link.sandbox_id == row.id]
        known = {ForwardSpec.of(link).local_port: link for link in found}
        missing = [port for port in ports if port not in known]
        if missing or not found:
            what = f"port {missing[0]} of this machine" if missing else "no port"
            raise NotFound(
                f"{what} is {'not ' if missing else ''}forwarded to `{row.name}`", hint="`sbx forward ls` lists them"
            )
        return [known[port] for port in ports] if ports else found

    def bind(self, specs: Sequence[ForwardSpec], *, any_port: bool = False) -> list[Bound]:
        """Listen for forwards; see `bind_all`.

        Raises:
            AddressInUse: A port is taken, by another forward of this home or by somebody else. AccessDenied: It is not
            ours to take.
        """
        try:
            return bind_all(specs, any_port=any_port)
        except AddressInUse as exc:
            port = exc.details.get("port")
            link = next((one for one in self.all() if one.is_served and ForwardSpec.of(one).local_port == port), None)
            if link is None:
                raise
            raise _taken_by(link, exc, self._guests.context_name) from exc

    def take(self, row: Registration, spec: ForwardSpec, *, is_detached: bool = False) -> Link:
        """Make a forward's link, or take one up that nobody acts on; rows of processes that were killed go.

        Raises:
            Conflict: Another process acts on it.
        """
        for link in self._links.list(KIND, row.context):
            if not link.is_detached and not link.is_served:
                self._links.forget(link, actor=self._actor)
        return self._links.take(
            context=row.context,
            kind=spec.key,
            sandbox=row.name,
            sandbox_id=row.id,
            spec=spec.as_row(),
            owner="" if is_detached else str(own_identity()),
            actor=self._actor,
            is_detached=is_detached,
        )

    async def mode(self, row: Registration, wanted: Mode | None = None) -> Mode:
        """How its ports are forwarded. Wakes nothing whose guest is known.

        Args:
            row: The sandbox.
            wanted: None: through a tunnel where its guest has one, else through its endpoint.

        Raises:
            NotFound: The sandbox has ended. Unsupported: It has no guest for a tunnel, and one is wanted.
        """
        if wanted is Mode.TUNNEL and speaks_v1(row):
            raise Unsupported(
                f"the image of `{row.name}` has an old guest without tunnels",
                hint="`--mode proxy` forwards HTTP; rebuild the image with `sbx image build` for the rest",
            )
        await self._guests.state(row)
        if wanted is not None:
            return wanted
        return Mode.TUNNEL if await self._guests.has_tunnel(row) else Mode.PROXY

    async def run(
        self,
        row: Registration,
        links: Sequence[Link],
        bound: Sequence[Bound],
        ways: SharedWays,
        on_trouble: OnTrouble = lambda words: None,
        on_status: Callable[[ForwardStatus], None] = lambda status: None,
        on_port: Callable[[OpenPort], None] = lambda port: None,
    ) -> None:
        """Act on links of ours until they are stopped or this is cancelled; then nothing listens any more.

        Args:
            row: The sandbox.
            links: One for each forward, all of one mode.
            bound: What listens for each.
            ways: Of this process.
            on_trouble: Called with what went wrong with a connection, once for each kind.
            on_status: Called when the way to the sandbox changes.
            on_port: Called with each port that something new in the sandbox listens on.

        Raises:
            NotFound: The sandbox has ended. Unsupported: Its guest has no tunnel. SbxError: It cannot go on.
        """
        async with AsyncExitStack() as stack:
            for link, one in zip(links, bound, strict=True):
                stack.callback(one.close)
                stack.push_async_callback(self._leave, link)
            mode = bound[0].spec.mode
            shared = await stack.enter_async_context(ways.use(row, mode, partial(self._way, row, mode)))
            ports = [Port(one, shared.way, on_trouble) for one in bound]
            for port in ports:
                stack.callback(port.close)
                await port.open()
            looks = (self._look_for_ports(row, shared.way), self._tell_ports(row, on_port))
            async with beside(_watch(ports[0], shared, on_status), *looks, shared.until_over()):
                await asyncio.gather(*(self._serve(*pair, shared) for pair in zip(links, ports, strict=True)))

    async def _serve(self, link: Link, port: Port, shared: Shared) -> None:
        await self._tell(link, port, shared)
        port.close()

    async def _tell_ports(self, row: Registration, on_port: Callable[[OpenPort], None]) -> None:
        async with aclosing(self._ports.began(row)) as began:
            async for port in began:
                on_port(port)

    async def _look_for_ports(self, row: Registration, way: Way) -> None:
        """Look for new ports while bytes pass anyway: looking is asking the sandbox, and keeps it awake."""
        moved_bytes = way.moved_bytes
        while True:
            await asyncio.sleep(_PORTS_EVERY_S)
            if way.state is not TunnelState.UP or way.moved_bytes == moved_bytes:
                continue
            moved_bytes = way.moved_bytes
            with suppress(SbxError):
                await self._ports.look(row)

    async def _tell(self, link: Link, port: Port, shared: Shared) -> None:
        """Tell others how a forward is until somebody wants it stopped; what the store refuses is tried again."""
        said: dict[str, object] = {}
        async with Listener(self._home, poll_s=_LOOK_EVERY_S) as listener:
            while True:
                current = port.status(shared.way.state, shared.reason).as_json()
                try:
                    if current != said:
                        await asyncio.to_thread(self._links.say, link, current)
                        said = current
                    await asyncio.sleep(_LOOK_EVERY_S / 2)
                    await listener.wait(_LOOK_EVERY_S)
                    found = await asyncio.to_thread(self._links.find, link.context, link.kind, link.sandbox_id)
                except StoreError as exc:
                    log.warning("%s: %s", link.sandbox, exc.message)
                    await asyncio.sleep(_LOOK_EVERY_S)
                    continue
                if found is None or not found.is_wanted:
                    return

    async def _leave(self, link: Link) -> None:
        """Stop acting on a link; one that lives with its process, or that nobody wants any more, goes."""
        with suppress(SbxError):
            await asyncio.to_thread(self._links.leave, link, str(own_identity()))
            found = await asyncio.to_thread(self._links.find, link.context, link.kind, link.sandbox_id)
            if found is not None and (not found.is_detached or found.wanted is Wanted.STOPPED):
                await asyncio.to_thread(lambda: self._links.forget(found, actor=self._actor))

    async def _way(self, row: Registration, mode: Mode, on_state: OnState) -> Way:
        if mode is Mode.PROXY:
            return await self._guests.web_way(row, on_state=on_state)

        async def is_asleep() -> bool:
            return await self._guests.state(row) in (SandboxState.SUSPENDED, SandboxState.SUSPENDING)

        return TunnelWay(await self._guests.tunnel(row, is_asleep=is_asleep, on_state=on_state))

    async def detach(self, row: Registration, specs: Sequence[ForwardSpec]) -> list[Link]:
        """Leave forwards to the runner, and start one if none runs; returns when all are listened for.

        Raises:
            Conflict: One is acted on already. SbxError: One cannot be; none is left then.
        """
        links: list[Link] = []
        try:
            for spec in specs:
                links.append(await asyncio.to_thread(partial(self.take, row, spec, is_detached=True)))
            await asyncio.to_thread(start_runner, self._home)
            return [await self._started(link) for link in links]
        except BaseException:
            for link in links:
                await asyncio.shield(asyncio.to_thread(self._end, link))
            raise

    async def _started(self, link: Link) -> Link:
        deadline_s = asyncio.get_running_loop().time() + _START_TIMEOUT_S
        while True:
            found = await asyncio.to_thread(self._links.find, link.context, link.kind, link.sandbox_id)
            if found is not None and found.is_served and found.status.get("addresses"):
                return found
            if found is not None and found.status.get("error"):
                raise SbxError(str(found.status["error"]), hint="see `sbx forward ls`")
            if asyncio.get_running_loop().time() > deadline_s:
                hint = f"see {self._home.log_dir / 'forwards.log'}"
                raise TimedOut("the runner does not listen for it yet", hint=hint)
            await asyncio.sleep(_POLL_S)

    async def stop(self, row: Registration, ports: Sequence[int] = ()) -> list[Link]:
        """End forwards of a sandbox, whoever acts on them.

        Raises:
            NotFound: There are none. TimedOut: Who acts on one does not end it.
        """
        links = await asyncio.to_thread(self.of, row, ports)
        for link in links:
            await asyncio.to_thread(self._links.want, link, Wanted.STOPPED, actor=self._actor)
        deadline_s = asyncio.get_running_loop().time() + _START_TIMEOUT_S
        for link in links:
            while (
                found := await asyncio.to_thread(self._links.find, link.context, link.kind, link.sandbox_id)
            ) is not None:
                if not found.is_served:
                    await asyncio.to_thread(self._links.forget, found, actor=self._actor)
                elif asyncio.get_running_loop().time() > deadline_s:
                    raise TimedOut(f"process {found.owner.partition(':')[0]} goes on with port {link.kind}")
                await asyncio.sleep(_POLL_S)
        return links

    def _end(self, link: Link) -> None:
        with suppress(SbxError):
            self._links.want(link, Wanted.STOPPED, actor=self._actor)
            self._links.forget(link, actor=self._actor)


def _taken_by(link: Link, failure: AddressInUse, context: str) -> AddressInUse:
    spec = ForwardSpec.of(link)
    holder = f"the forward of port {spec.remote_port} of `{link.sandbox}`"
    words = f"sbx forward stop {link.sandbox} {spec.local_port}"
    if link.context != context:
        words += f" --context {link.context}"
    return AddressInUse(
        f"port {spec.local_port} of this machine is taken by {holder}",
        hint=f"`{words}` ends that one; or {failure.hint}",
        details={**failure.details, "holder": holder},
    )


async def _watch(port: Port, shared: Shared, on_status: Callable[[ForwardStatus], None]) -> None:
    """Tell each new state of the way to the sandbox."""
    changed = asyncio.Event()
    shared.watchers.add(changed)
    try:
        while True:
            on_status(port.status(shared.way.state, shared.reason))
            changed.clear()
            await changed.wait()
    finally:
        shared.watchers.discard(changed)
