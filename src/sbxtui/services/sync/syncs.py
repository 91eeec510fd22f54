"""Links between folders of this machine and of sandboxes, for every face: made, acted on, asked, decided on, ended."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path as FilePath

from sbxtui.core.errors import Conflict, NotFound, StoreError, TimedOut
from sbxtui.core.model import Registration, SandboxId
from sbxtui.home import Home
from sbxtui.identity import own_identity
from sbxtui.services.guests import Guests
from sbxtui.services.runnerctl import start_runner
from sbxtui.services.sync.arrival import check_arrived
from sbxtui.services.sync.beside import beside
from sbxtui.services.sync.cycle import Cycle, OnStatus
from sbxtui.services.sync.folder import Folder
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.leftovers import STAGE_SUFFIX, clear_beside, sweep
from sbxtui.services.sync.link import AGAIN_S, LiveLink
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.pair import ACCEPT_DELETES, ACCEPT_LARGE, Pair
from sbxtui.services.sync.spec import SyncSpec
from sbxtui.services.sync.status import LinkState, Status, tells_more, way_out
from sbxtui.services.sync.views import ConflictView
from sbxtui.services.sync.watch import EVERYTHING
from sbxtui.store.ancestors import Ancestors
from sbxtui.store.doorbell import Listener
from sbxtui.store.links import Link, Links, Wanted

log = logging.getLogger(__name__)

KIND = "sync"
_SAY_EVERY_S = 0.5
_LOOK_EVERY_S = 1.0
_FLUSH_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 20.0
_END_POLL_S = 0.05


class Syncs:
    """The syncs of one context's sandboxes."""

    def __init__(self, home: Home, guests: Guests, links: Links, actor: str) -> None:
        self._home = home
        self._guests = guests
        self._links = links
        self._actor = actor

    def find(self, row: Registration) -> Link:
        """The link of a sandbox.

        Raises:
            NotFound: It has none. StoreTooNew: A newer sbx keeps it.
        """
        link = self._links.find(row.context, KIND, row.id)
        if link is None:
            raise NotFound(f"`{row.name}` is not synced with a folder", hint=f"sbx sync {row.name} DIR")
        return link.known()

    def list(self, context: str | None = None) -> list[Link]:
        """Every link, or those of a context."""
        return self._links.list(KIND, context)

    def take(self, row: Registration, spec: SyncSpec, *, is_detached: bool = False) -> Link:
        """Make a link, or take one up that nobody acts on; this process acts on it then, or, detached, the runner.

        Raises:
            Conflict: Another process acts on it, or the sandbox is synced with another folder.
        """
        found = self._links.find(row.context, KIND, row.id)
        known = None if found is None else SyncSpec.of(found)
        if known is not None and (known.root, known.to) != (spec.root, spec.to):
            raise Conflict(
                f"`{row.name}` is synced already: {known.root} with its {known.to or 'work folder'}",
                hint=f"`sbx sync stop {row.name}` ends that",
            )
        return self._links.take(
            context=row.context,
            kind=KIND,
            sandbox=row.name,
            sandbox_id=row.id,
            spec=spec.as_row(),
            owner="" if is_detached else str(own_identity()),
            actor=self._actor,
            is_detached=is_detached,
        )

    async def detach(self, row: Registration, spec: SyncSpec) -> Link:
        """Make a link that the runner keeps, and start the runner if none runs; returns when it is acted on.

        Raises:
            Conflict: See `take`. TimedOut: The runner does not act on it.
        """
        link = await asyncio.to_thread(lambda: self.take(row, spec, is_detached=True))
        await asyncio.to_thread(start_runner, self._home)
        deadline_s = asyncio.get_running_loop().time() + _END_TIMEOUT_S
        while not link.is_served:
            if asyncio.get_running_loop().time() > deadline_s:
                raise TimedOut("the runner does not act on it yet", hint=f"see {self._home.log_dir / 'syncs.log'}")
            await asyncio.sleep(_END_POLL_S)
            link = await asyncio.to_thread(self.find, row)
        return link

    async def run(self, row: Registration, link: Link, on_status: OnStatus) -> Status:
        """Act on a link of ours until somebody wants it stopped, or this is cancelled; returns how it was at its end.

        Raises:
            SbxError: It cannot go on; what is known of it is kept.
        """
        owner = str(own_identity())
        try:
            async with self.opened(row, SyncSpec.of(link)) as pair, self._taking_in(row, pair) as intake:
                live = LiveLink(
                    pair,
                    on_status,
                    intake=intake,
                    on_conflict=SyncSpec.of(link).on_conflict,
                    explain=partial(self._guests.explain, row),
                    listens_s=self._guests.unnoticed_s(row),
                    runs=partial(self._guests.runs, row),
                )
                live.pause(link.wanted is Wanted.PAUSED)
                try:
                    async with beside(self._obey(link, live, pair)):
                        await live.run()
                finally:
                    await asyncio.to_thread(self._links.say, link, live.status.as_json())
                return live.status
        finally:
            await asyncio.to_thread(self._links.leave, link, owner)
            if await asyncio.to_thread(self._links.find, link.context, KIND, link.sandbox_id) is None:
                await self.sweep()

    async def _obey(self, link: Link, live: LiveLink, pair: Pair) -> None:
        """Tell others how the link is, and do what they want of it; what the store refuses is tried again."""
        said: dict[str, object] = {}
        async with Listener(self._home, poll_s=_LOOK_EVERY_S) as listener:
            while True:
                current = live.status.as_json()
                try:
                    if tells_more(current, said):
                        await asyncio.to_thread(self._links.say, link, current)
                        said = current
                    await asyncio.sleep(_SAY_EVERY_S)
                    await listener.wait(_LOOK_EVERY_S)
                    found = await asyncio.to_thread(self._links.find, link.context, KIND, link.sandbox_id)
                except StoreError as exc:
                    log.warning("%s: %s", link.sandbox, exc.message)
                    await asyncio.sleep(_LOOK_EVERY_S)
                    continue
                if found is None or not found.is_wanted:
                    live.stop()
                    return
                live.pause(found.wanted is Wanted.PAUSED)
                if pair.is_outdated:
                    if live.status.state is LinkState.HALTED:
                        live.compare_again()
                    elif pair.undecided:
                        # Somebody may have decided them: what is told of them is not to stand until the next save.
                        live.hint(pair.undecided)

    @asynccontextmanager
    async def opened(self, row: Registration, spec: SyncSpec) -> AsyncIterator[Pair]:
        """The two folders of a link, for as long as the block lasts.

        Raises:
            FileMissing, UsageError: This machine's is no folder. StoreError: What was agreed on cannot be kept.
        """
        folder = await asyncio.to_thread(Folder, spec.root)
        try:
            ancestors = await asyncio.to_thread(Ancestors.open, self.state_file(row))
            try:
                async with self._guests.connect(row) as guest:
                    pair = Pair(folder, guest.tree(spec.to), ancestors, spec.mode)
                    if spec.to and not pair.has_met:
                        # Later, a folder that is not there is one that was lost.
                        await guest.files.make_directory(spec.to, has_parents=True)
                    yield pair
            finally:
                ancestors.close()
        finally:
            folder.close()

    def state_file(self, row: Registration) -> FilePath:
        """Where what a sandbox and its folder agree on is kept; the name beginning all files of their link."""
        return self._files_dir / f"{_key(row.context, row.id)}.db"

    @property
    def _files_dir(self) -> FilePath:
        return self._home.state_dir / "sync"

    async def flush(self, row: Registration) -> int:
        """Carry over now what this machine's folder has and the sandbox has not; returns how many changes that were.

        Whoever acts on the link may do it at the same time; afterwards the sandbox has everything saved before this.

        Raises:
            NotFound: The sandbox has no link. Conflict: The link is halted. SbxError: It cannot be done.
            Incomplete: All else is there; `details["failed"]` names what is not.
        """
        link = await asyncio.to_thread(self.find, row)
        async with self.opened(row, SyncSpec.of(link)) as pair, pair.ancestors.cycle(timeout_s=_FLUSH_TIMEOUT_S):
            cycle = Cycle(pair)
            if pair.has_met:
                await cycle.follow({EVERYTHING})
            else:
                await cycle.compare()
            if cycle.status.halts:
                raise halted(row.name, cycle.status)
            check_arrived(row.name, cycle)
            return cycle.status.pushed

    async def once(self, row: Registration, link: Link, on_status: OnStatus) -> Status:
        """Compare a link of ours as a whole, carry over what differs, and leave it.

        Raises:
            Conflict: It is halted. SbxError: It cannot be done.
        """
        try:
            async with self.opened(row, SyncSpec.of(link)) as pair, pair.ancestors.cycle(timeout_s=_FLUSH_TIMEOUT_S):
                async with self._taking_in(row, pair) as intake:
                    cycle = Cycle(pair, on_status, intake=intake, on_conflict=SyncSpec.of(link).on_conflict)
                    await cycle.compare()
                    await cycle.come_back(AGAIN_S[:-1])
                status = cycle.status
            status.state = LinkState.ENDED
            await asyncio.to_thread(self._links.say, link, status.as_json())
        finally:
            await asyncio.to_thread(self._links.leave, link, str(own_identity()))
        if status.halts:
            raise halted(row.name, status)
        return status

    async def accept_deletes(self, row: Registration) -> None:
        """A person agrees that a mirror's first comparison deletes what only the sandbox has."""
        await self._consent(row, ACCEPT_DELETES)

    async def accept_large(self, row: Registration) -> None:
        """A person agrees that the first comparison sends very much."""
        await self._consent(row, ACCEPT_LARGE)

    async def _consent(self, row: Registration, what: str) -> None:
        ancestors = await asyncio.to_thread(Ancestors.open, self.state_file(row))
        try:
            await asyncio.to_thread(ancestors.set_meta, {what: "1"})
        finally:
            ancestors.close()

    async def start_anew(self, row: Registration) -> None:
        """Agree on nothing any more, as after a halt that a person has looked into: then nothing is deleted."""
        link = await asyncio.to_thread(self.find, row)
        async with self.opened(row, SyncSpec.of(link)) as pair, pair.ancestors.cycle(timeout_s=_FLUSH_TIMEOUT_S):
            await pair.start_anew()

    @asynccontextmanager
    async def reviewing(self, row: Registration) -> AsyncIterator[tuple[Pair, Intake]]:
        """The two folders of a sandbox's link to look at and decide on; nobody else changes them in the block.

        Raises:
            NotFound: The sandbox has no link. TimedOut: Somebody else is at it for too long.
        """
        link = await asyncio.to_thread(self.find, row)
        async with self.opened(row, SyncSpec.of(link)) as pair, pair.ancestors.cycle(timeout_s=_FLUSH_TIMEOUT_S):
            intake = await asyncio.to_thread(self._intake, row, pair)
            try:
                yield pair, intake
            finally:
                intake.close()

    @asynccontextmanager
    async def _taking_in(self, row: Registration, pair: Pair) -> AsyncIterator[Intake | None]:
        """What takes the sandbox's changes in, for a two-way link."""
        intake = await asyncio.to_thread(self._intake, row, pair) if pair.mode is Mode.TWO_WAY else None
        try:
            yield intake
        finally:
            if intake is not None:
                intake.close()

    def _intake(self, row: Registration, pair: Pair) -> Intake:
        return Intake(pair.folder, self.state_file(row).with_suffix(STAGE_SUFFIX))

    async def conflicts(self, row: Registration) -> tuple[ConflictView, ...]:
        """Paths both sides changed, as of the last comparison."""
        await asyncio.to_thread(self.find, row)
        ancestors = await asyncio.to_thread(Ancestors.open, self.state_file(row))
        try:
            return tuple(ConflictView.of(one) for one in await asyncio.to_thread(ancestors.disputes))
        finally:
            ancestors.close()

    async def want(self, row: Registration, wanted: Wanted) -> Link:
        """Pause, go on with or stop a link; who acts on it obeys within a moment."""
        link = await asyncio.to_thread(self.find, row)
        await asyncio.to_thread(lambda: self._links.want(link, wanted, actor=self._actor))
        return link

    async def obeyed(self, row: Registration) -> bool:
        """Whether who acts on a link pauses or goes on as was wanted, waited for a while; nobody obeys at once."""
        deadline_s = asyncio.get_running_loop().time() + _END_TIMEOUT_S
        while (link := await asyncio.to_thread(self.find, row)).is_served:
            if (link.wanted is Wanted.PAUSED) is (link.status.get("state") == LinkState.PAUSED):
                break
            if asyncio.get_running_loop().time() > deadline_s:
                return False
            await asyncio.sleep(_END_POLL_S)
        return True

    async def end(self, row: Registration) -> tuple[str, ...]:
        """End a link, whoever acts on it, and forget all that is known of it; no file of either side is touched.

        Returns:
            Folders of this machine that still keep what the link replaced here, for a week.

        Raises:
            NotFound: The sandbox has none. TimedOut: Who acts on it does not end.
        """
        link = await self.want(row, Wanted.STOPPED)
        deadline_s = asyncio.get_running_loop().time() + _END_TIMEOUT_S
        while (await asyncio.to_thread(self.find, row)).is_served:
            if asyncio.get_running_loop().time() > deadline_s:
                raise TimedOut(f"process {link.owner.partition(':')[0]} goes on with the sync of `{row.name}`")
            await asyncio.sleep(_END_POLL_S)
        await asyncio.to_thread(lambda: self._links.forget(link, actor=self._actor))
        await self.sweep()
        left = await asyncio.to_thread(clear_beside, str(link.spec["root"]))
        own = self.state_file(row).with_suffix(STAGE_SUFFIX)
        return (str(own), *left) if own.exists() else tuple(left)

    async def sweep(self) -> None:
        """Remove what links that ended, or whose sandboxes were removed, left on this machine."""

        def is_kept(key: str) -> bool:
            return any(_key(link.context, link.sandbox_id) == key for link in self._links.list(KIND))

        await asyncio.to_thread(sweep, self._files_dir, is_kept)


def _key(context: str, sandbox_id: SandboxId) -> str:
    """What the names of all files of a link begin with."""
    return hashlib.sha256(f"{context}\0{sandbox_id}".encode()).hexdigest()[:20]


def halted(name: str, status: Status) -> Conflict:
    """The error for a link that does nothing until a person decides."""
    return Conflict(
        f"the sync of `{name}` is halted: {status.words}",
        hint=way_out(name, status.halts),
        details={"halts": list(status.halts)},
    )
