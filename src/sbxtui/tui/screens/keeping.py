"""What the dashboard does with copies and secrets of the selected sandbox: asks, and hands over to the background."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.message import Message

from sbxtui.core.errors import SbxError, UsageError
from sbxtui.core.model import Registration, Sandbox
from sbxtui.core.text import short_size
from sbxtui.tui.messages import Progress
from sbxtui.tui.screens.doing import Doing, name_problem
from sbxtui.tui.working import worker

if TYPE_CHECKING:
    from sbxtui.services.secrets import SecretState
    from sbxtui.services.snapshots import Snapshot

# No name of a secret or a snapshot is empty.
_NEW = ""


class SnapshotsSeen(Message):
    """The snapshots of the context, for a person who looks at one of its sandboxes."""

    def __init__(self, target: Sandbox, found: Sequence[Snapshot]) -> None:
        super().__init__()
        self.target = target
        self.found = found


class SecretsSeen(Message):
    """The secrets of a sandbox, without their values."""

    def __init__(self, target: Sandbox, found: Sequence[SecretState]) -> None:
        super().__init__()
        self.target = target
        self.found = found


class Keeping(Doing):
    """Forks, snapshots and secrets."""

    def do_fork(self) -> None:
        """Ask what a second sandbox is called that goes on from where this one is."""
        from sbxtui.tui.screens.ask import AskScreen

        if (target := self._named()) is None:
            return

        def answered(name: str | None) -> None:
            if name is not None:
                self.start_fork(self._begin("forking", [target]), target, name)

        line = f"sbx fork {target.name} {{}}"
        screen = AskScreen(f"Fork {target.name} as", line=line.format, check=_made_up_or_name, hint="empty: made up")
        self.app.push_screen(screen, answered)

    def do_snapshot(self) -> None:
        """Look up the snapshots, then ask: another one, or a sandbox from one."""
        if (target := self._named()) is not None:
            self.look_for_snapshots(target)

    def do_secret(self) -> None:
        """Look up its secrets, then ask: another one, or to take one back."""
        if (target := self._named()) is not None:
            self.look_for_secrets(target)

    @on(SnapshotsSeen)
    def snapshots_seen(self, message: SnapshotsSeen) -> None:
        """Ask which one."""
        from sbxtui.tui.screens.choose import ChooseScreen

        target = message.target
        known = [(one.name, one.name, f"of {one.sandbox}, {short_size(one.size_bytes)}") for one in message.found]

        def chosen(name: str | None) -> None:
            if name == _NEW:
                self._ask_snapshot(target)
            elif name is not None:
                self._ask_restore(target, name)

        choices = [(_NEW, f"copy {target.name} as it stands", "it goes on meanwhile"), *known]
        self.app.push_screen(ChooseScreen("A snapshot, or a sandbox from one", choices), chosen)

    @on(SecretsSeen)
    def secrets_seen(self, message: SecretsSeen) -> None:
        """Ask which one."""
        from sbxtui.tui.screens.choose import ChooseScreen

        target = message.target
        known = [(one.key, one.key, f"goes to {', '.join(one.places)}") for one in message.found]

        def chosen(key: str | None) -> None:
            if key == _NEW:
                self._ask_secret(target)
            elif key is not None:
                self._ask_back(target, key)

        choices = [(_NEW, "give one", "programs use it, and cannot read it"), *known]
        self.app.push_screen(ChooseScreen(f"Secrets of {target.name}", choices), chosen)

    def _named(self) -> Sandbox | None:
        selected = self.fleet.selected
        if selected is None or not selected.is_tracked:
            self.tell("only with a sandbox that has a name here: a adopts it", "warning")
            return None
        return selected

    def _ask_snapshot(self, target: Sandbox) -> None:
        from sbxtui.tui.screens.ask import AskScreen

        def answered(name: str | None) -> None:
            if name is not None:
                self.start_snapshot(self._begin("copying", [target]), target, name)

        line = f"sbx snapshot create {target.name} {{}}"
        screen = AskScreen("Call the snapshot", line=line.format, check=_made_up_or_name, hint=f"{target.name}-1")
        self.app.push_screen(screen, answered)

    def _ask_restore(self, target: Sandbox, snapshot: str) -> None:
        from sbxtui.tui.screens.ask import AskScreen

        def answered(name: str | None) -> None:
            if name is not None:
                self.start_restore(self._begin("restoring", [target]), target, snapshot, name)

        line = f"sbx snapshot restore {snapshot} {{}}"
        title = f"A sandbox from {snapshot}, called"
        self.app.push_screen(
            AskScreen(title, line=line.format, check=_made_up_or_name, hint="empty: made up"), answered
        )

    def _ask_secret(self, target: Sandbox) -> None:
        from sbxtui.tui.screens.ask import AskScreen

        def answered(words: str | None) -> None:
            if words:
                key, *hosts = words.split()
                self._ask_value(target, key, [host for part in hosts for host in part.split(",") if host])

        screen = AskScreen(
            f"A secret for {target.name}",
            line=lambda words: _secret_line(target.name, words),
            check=_secret_problem,
            hint="KEY HOST,…   without hosts: where a key of that name usually goes",
        )
        self.app.push_screen(screen, answered)

    def _ask_value(self, target: Sandbox, key: str, hosts: Sequence[str]) -> None:
        from sbxtui.tui.screens.ask import AskScreen

        def answered(value: str | None) -> None:
            if value:
                self.start_giving(self._begin("giving", [target]), target, key, value, hosts)

        line = _secret_line(target.name, " ".join((key, ",".join(hosts))))
        screen = AskScreen(f"The value of {key}", line=lambda _: line, check=_value_problem, is_hidden=True)
        self.app.push_screen(screen, answered)

    def _ask_back(self, target: Sandbox, key: str) -> None:
        from sbxtui.tui.screens.confirm import ConfirmScreen

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.start_taking(self._begin("taking", [target]), target, key)

        loss = "No request carries it from then on."
        self.app.push_screen(ConfirmScreen(f"Take {key} back from {target.name}?", [key], loss, "take back"), answered)

    @worker(exclusive=True, group="keeping")
    async def look_for_snapshots(self, target: Sandbox) -> None:
        """Ask the local cloud for snapshots."""
        try:
            snapshots = await asyncio.to_thread(lambda: self.services.snapshots)
            self.post_message(SnapshotsSeen(target, await snapshots.list()))
        except SbxError as exc:
            self.failed("snapshots", exc)

    @worker(exclusive=True, group="keeping")
    async def look_for_secrets(self, target: Sandbox) -> None:
        """Ask the local cloud for the secrets of a sandbox."""
        try:
            secrets = await asyncio.to_thread(lambda: self.services.secrets)
            self.post_message(SecretsSeen(target, await secrets.list(await self.row_of(target))))
        except SbxError as exc:
            self.failed("secrets", exc)

    @worker(group="change")
    async def start_fork(self, work: str, target: Sandbox, name: str) -> None:
        """Make a second sandbox of one."""

        async def act(row: Registration) -> str:
            from sbxtui.services.plan import CreateOptions

            forked = await self.services.snapshots.fork(
                row, name or None, CreateOptions(), on_progress=lambda words: self._progressed(work, words)
            )
            return f"as {forked.name}"

        await self._change(work, "forked", [target], act)

    @worker(group="change")
    async def start_snapshot(self, work: str, target: Sandbox, name: str) -> None:
        """Copy a sandbox."""

        async def act(row: Registration) -> str:
            return f"as {(await self.services.snapshots.create(row, name or None)).name}"

        await self._change(work, "copied", [target], act)

    @worker(group="change")
    async def start_restore(self, work: str, target: Sandbox, snapshot: str, name: str) -> None:
        """Make a sandbox from a snapshot."""

        async def act(row: Registration) -> str:
            del row
            from sbxtui.services.plan import CreateOptions

            snapshots = self.services.snapshots
            made = await snapshots.restore(
                await snapshots.find(snapshot),
                name or None,
                CreateOptions(),
                on_progress=lambda words: self._progressed(work, words),
            )
            return f"{snapshot} as {made.name}"

        await self._change(work, "restored", [target], act)

    @worker(group="change")
    async def start_giving(self, work: str, target: Sandbox, key: str, value: str, hosts: Sequence[str]) -> None:
        """Give a sandbox a secret."""

        async def act(row: Registration) -> str:
            state = await self.services.secrets.set(row, key, value, hosts)
            return f"{key}; it goes to {', '.join(state.places)}"

        await self._change(work, "given", [target], act)

    @worker(group="change")
    async def start_taking(self, work: str, target: Sandbox, key: str) -> None:
        """Take a secret back."""

        async def act(row: Registration) -> str:
            await self.services.secrets.remove(row, key)
            return key

        await self._change(work, "taken back", [target], act)

    def _progressed(self, work: str, words: str) -> None:
        self.post_message(Progress(work, words))


def _made_up_or_name(name: str) -> str:
    return name_problem(name) if name else ""


def _secret_problem(words: str) -> str:
    from sbxtui.core.secrets import check_key

    if not words:
        return "nothing yet"
    try:
        check_key(words.split()[0])
    except UsageError as exc:
        return f"{exc.message} {exc.hint}".strip()
    return ""


def _value_problem(value: str) -> str:
    from sbxtui.core.secrets import check_value

    try:
        check_value(value)
    except UsageError as exc:
        return exc.message
    return ""


def _secret_line(name: str, words: str) -> str:
    key, *hosts = words.split() or [""]
    return " ".join(["sbx secret set", name, key, *(["--host", ",".join(hosts)] if hosts else [])])
