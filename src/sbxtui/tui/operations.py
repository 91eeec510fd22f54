"""Work in the background: each worker calls services and posts messages; none touches a widget.

A worker that fails as no service promises is reported by its state change, so that nothing here catches everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from textual.screen import Screen

from sbxtui.core.errors import Conflict, SbxError
from sbxtui.core.model import Registration, Sandbox, SandboxId, SandboxState
from sbxtui.tui import clock
from sbxtui.tui.enduring import Enduring
from sbxtui.tui.messages import Changed, Created, LossesSeen, Opened, Progress, RecordSeen, Seen
from sbxtui.tui.opening import FirstLook
from sbxtui.tui.words import shown_name
from sbxtui.tui.working import worker
from sbxtui.wiring import Services

if TYPE_CHECKING:
    from sbxtui.tui.screens.create import Wish

# Workers of these groups leave something half done when they are cut off.
BUSY_GROUPS = frozenset({"create", "change", "run", "transfer", "lend"})
# A question is not kept waiting longer for what could be said with it.
_LOSSES_DEADLINE_S = 5.0


class Operations(Enduring, Screen[None]):
    """A screen that can work in the background. Several changes run at once; looks of one kind replace each other."""

    def __init__(self, first_look: FirstLook) -> None:
        super().__init__()
        self.first_look = first_look

    @property
    def services(self) -> Services:
        """The services; to be used only after the store was opened."""
        assert self.first_look.services is not None, "nothing acts before the first look is over"
        return self.first_look.services

    @worker(exclusive=True, group="open")
    async def open_again(self) -> None:
        """Wait for the first look, or look again after it failed."""
        look = self.first_look
        if look.error is not None:
            await asyncio.to_thread(look.run)
        await asyncio.to_thread(look.wait, None)
        self.post_message(Opened(look.opening, look.error))

    @worker(exclusive=True, group="watch")
    async def follow(self) -> None:
        """Watch the sandboxes until the screen goes away."""
        services = self.services
        async with aclosing(services.watch.follow(services.context)) as looks:
            async for inventory in looks:
                # A small file: a local cloud may have been started anew with another runtime between two looks.
                planes, context = services.planes, services.context
                isolation, shortfall = planes.isolation_words(context), planes.isolation_shortfall(context)
                self.post_message(Seen(inventory, isolation, shortfall))

    @worker(group="create")
    async def start_create(self, work: str, wish: Wish) -> None:
        """Make a sandbox; cancelling takes it back."""

        def tell(words: str) -> None:
            self.post_message(Progress(work, words))

        try:
            if not await asyncio.to_thread(self.services.planes.isolation_words, self.services.context):
                tell("starting the local cloud")
            # These services reach guests and AWS: importing them takes as long as importing all of textual.
            launcher = await asyncio.to_thread(lambda: self.services.launcher)
            from sbxtui.services.launch import CreateOptions

            options = CreateOptions(
                memory_mib=wish.memory_mib, network=wish.network, idle_s=wish.idle_s, isolation=wish.isolation
            )
            row = await launcher.create(wish.name or None, options, on_progress=tell)
        except SbxError as exc:
            self.post_message(Created(work, wish.name, exc))
            return
        self.post_message(Created(work, row.name))

    @worker(group="change")
    async def start_suspend(self, work: str, targets: Sequence[Sandbox]) -> None:
        """Suspend sandboxes, a few at a time."""
        await self._change(work, "suspended", targets, lambda row: self.services.sandboxes.suspend(row))

    @worker(group="change")
    async def start_resume(self, work: str, targets: Sequence[Sandbox]) -> None:
        """Resume sandboxes, a few at a time."""
        await self._change(work, "resumed", targets, lambda row: self.services.sandboxes.resume(row))

    @worker(group="change")
    async def start_remove(self, work: str, targets: Sequence[Sandbox]) -> None:
        """End sandboxes for good, a few at a time."""
        await self._change(work, "removed", targets, lambda row: self.services.sandboxes.remove(row))

    @worker(exclusive=True, group="losses")
    async def look_for_losses(self, targets: Sequence[Sandbox]) -> None:
        """Ask what runs in sandboxes that may be removed."""
        self.post_message(LossesSeen(targets, await asyncio.gather(*map(self._losses_of, targets))))

    async def _losses_of(self, target: Sandbox) -> list[str]:
        if target.state.is_gone:
            return []
        lists = await asyncio.to_thread(lambda: self.services.job_lists)
        from sbxtui.services.losses import link_losses
        from sbxtui.tui.losses import loss_lines

        lines: list[str] = []
        try:
            row = await self.row_of(target)
            lines += link_losses(await asyncio.to_thread(lambda: self.services.links.of(row.context, row.id)))
            async with asyncio.timeout(_LOSSES_DEADLINE_S):
                listing = await lists.of(row, target.state)
        except TimeoutError:
            return [*loss_lines([], ["it did not answer in time: commands may run in it"], clock.now()), *lines]
        except SbxError as exc:
            return [*loss_lines([], [exc.message], clock.now()), *lines]
        return [*loss_lines(listing.jobs, listing.problems, clock.now()), *lines]

    @worker(group="change")
    async def start_rename(self, work: str, target: Sandbox, name: str) -> None:
        """Give a sandbox another name."""

        async def act(row: Registration) -> str:
            await self.services.sandboxes.rename(row.name, name)
            return f"now {name}"

        await self._change(work, "renamed", [target], act)

    @worker(group="change")
    async def start_adopt(self, work: str, target: Sandbox, name: str) -> None:
        """Give a machine of the account a name here."""
        from sbxtui.services.targets import Outcome

        try:
            sandboxes = await asyncio.to_thread(lambda: self.services.sandboxes)
            row = await sandboxes.adopt(target.id, name or None)
            outcome = Outcome(row.name, words=f"as {row.name}")
        except SbxError as exc:
            outcome = Outcome(shown_name(target), error=exc)
        self.post_message(Changed(work, "adopted", [outcome], [target]))

    @worker(exclusive=True, group="record")
    async def look_up(self, sandbox_id: SandboxId, *, is_asked: bool) -> None:
        """Ask the control plane for one record."""
        try:
            sandboxes = await asyncio.to_thread(lambda: self.services.sandboxes)
            record = await sandboxes.record(sandbox_id)
        except SbxError as exc:
            self.post_message(RecordSeen(sandbox_id, None, exc, is_asked=is_asked))
            return
        self.post_message(RecordSeen(sandbox_id, record, None, is_asked=is_asked))

    async def _change(
        self, work: str, done: str, targets: Sequence[Sandbox], act: Callable[[Registration], Awaitable[str]]
    ) -> None:
        await asyncio.to_thread(lambda: self.services.sandboxes)
        from sbxtui.services.targets import Outcome, for_each

        rows: list[Registration] = []
        outcomes: list[Outcome] = []
        for target in targets:
            try:
                rows.append(await self.row_of(target))
            except SbxError as exc:
                outcomes.append(Outcome(shown_name(target), error=exc))
        outcomes += await for_each(rows, act)
        self.post_message(Changed(work, done, outcomes, targets))

    async def row_of(self, sandbox: Sandbox) -> Registration:
        """The row of exactly this sandbox: a name may have been given to another one since it was shown.

        Raises:
            SandboxNotFound: The name is gone. Conflict: It now means another sandbox, or there is none.
        """
        if not sandbox.is_tracked:
            raise Conflict(
                f"{shown_name(sandbox)} has no name here", hint=f"give it one: `sbx adopt {sandbox.id} NAME`"
            )
        row = await self.services.sandboxes.find(sandbox.name)
        is_same = row.name == sandbox.name and row.created_at == sandbox.created_at
        if not is_same or (sandbox.id and row.id != sandbox.id):
            raise Conflict(
                f"`{sandbox.name}` is another sandbox now; nothing was done", hint="look at the list, then try again"
            )
        return row


def can_suspend(sandbox: Sandbox) -> bool:
    """Whether suspending it makes sense."""
    return sandbox.is_tracked and sandbox.state is SandboxState.RUNNING


def can_resume(sandbox: Sandbox) -> bool:
    """Whether resuming it makes sense."""
    return sandbox.is_tracked and sandbox.state is SandboxState.SUSPENDED
