"""`sync`: a folder of this machine kept equal with one of a sandbox."""

from __future__ import annotations

import asyncio
import shlex
import time
from datetime import UTC, datetime

from sbxtui.cli.call import Call, stopped_words
from sbxtui.cli.fitting import Cut
from sbxtui.cli.syncreview import first_of
from sbxtui.core.errors import Incomplete, SbxError, UsageError
from sbxtui.core.model import Registration
from sbxtui.core.text import counted, harmless_line, iso, short_size
from sbxtui.services.runnerctl import start_runner
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.spec import SyncSpec
from sbxtui.services.sync.status import LinkState, Status, entries_of, way_out
from sbxtui.services.sync.views import SyncView
from sbxtui.store.links import Link, Wanted

_SHOW_EVERY_S = 1.0
_SHOWN = 10
COLUMNS = ("SANDBOX", "STATE", "MODE", "FOLDER")
CUTS = (Cut("FOLDER", 24), Cut("STATE", 16), Cut("MODE", 0), Cut("SANDBOX", 16), Cut("FOLDER", 8), Cut("STATE", 8))
CONFLICT_COLUMNS = ("PATH", "HERE", "SANDBOX")
CONFLICT_CUTS = (Cut("PATH", 24), Cut("HERE", 10), Cut("SANDBOX", 10), Cut("PATH", 12), Cut("HERE", 0))
_NO_SYNC = "no synced folders: `sbx sync SANDBOX` keeps this one in a sandbox"


async def start(call: Call) -> int:
    """Carry each change over as it is saved, until Ctrl-C; or once."""
    args, syncs = call.args, call.services.syncs
    if args.once and args.detach:
        raise UsageError("`--once` ends at once, `--detach` never", hint="leave one of them out")
    words = (args.folder, args.to, args.mode, args.on_conflict)
    spec = await asyncio.to_thread(SyncSpec.asked, *words, accepts_deletes=args.accept_deletes)
    row = await call.services.sandboxes.find(args.sandbox)
    if args.detach:
        await syncs.detach(row, spec)
        await _accept(call, row)
        call.out.note(f"`sbx sync status {row.name}` tells how it is, `sbx sync stop {row.name}` ends it")
        call.out.result({"sandbox": row.name, "detached": True})
        return 0
    link = await asyncio.to_thread(syncs.take, row, spec)
    await _accept(call, row)
    teller = _Teller(call, row.name)
    if args.once:
        return _finish(call, row.name, await syncs.once(row, link, teller.tell))
    call.out.note(f"{spec.root} → {row.name}:{args.to or '(its work folder)'}; Ctrl-C ends, what is known is kept")
    call.out.ends_by_interrupt = True
    status = await syncs.run(row, link, teller.tell)
    call.out.note(await stopped_words(call, row))
    call.out.result(status.as_json())
    return 0


async def ls(call: Call) -> int:
    """List synced folders."""
    links = await asyncio.to_thread(call.services.syncs.list, call.services.context.name)
    if call.out.is_json:
        call.out.json([_link_json(link) for link in links])
    else:
        rows = [(link.sandbox, _state(link), str(link.spec.get("mode")), str(link.spec.get("root"))) for link in links]
        names = [link.sandbox for link in links]
        call.out.table(COLUMNS, rows, cuts=CUTS, is_wide=call.args.wide, names=names, empty=_NO_SYNC)
    return 0


async def status(call: Call) -> int:
    """How a sync is."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    link = await asyncio.to_thread(call.services.syncs.find, row)
    if call.out.is_json:
        call.out.json(_link_json(link))
        return 0
    said = link.status
    call.out.line(f"{link.spec.get('root')} → {link.sandbox}:{link.spec.get('to') or '(its work folder)'}")
    entries, pending = entries_of(int(said.get("entries", 0))), counted(int(said.get("pending", 0)), "change")
    call.out.line(f"{_state(link)}: {entries}, {pending} to carry over")
    for key, words in (("conflict_count", "in conflict"), ("guest_changes", "changed in the sandbox only")):
        if said.get(key):
            call.out.line(f"{said[key]} {words}")
    if said.get("reason"):
        call.out.line(harmless_line(str(said["reason"])))
    if said.get("watch_trouble"):
        call.out.note(f"note: {harmless_line(str(said['watch_trouble']))}")
    for problem in said.get("problems", [])[:_SHOWN]:
        call.out.note(f"  left alone: {harmless_line(problem['path'])} ({harmless_line(problem['code'])})")
    return 0


async def pause(call: Call) -> int:
    """Carry nothing over for now."""
    return await _want(call, Wanted.PAUSED)


async def resume(call: Call) -> int:
    """Go on; after a halt, compare anew."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    link = await asyncio.to_thread(call.services.syncs.find, row)
    if link.status.get("halts"):
        await call.services.syncs.start_anew(row)
        call.out.note(f"what both sides agreed on is forgotten: {_what_follows(call, link)}")
    await _accept(call, row)
    return await _want(call, Wanted.RUNNING)


def _what_follows(call: Call, link: Link) -> str:
    """What a first comparison does, by the words of the mode."""
    if link.spec.get("mode") != Mode.MIRROR:
        return "nothing is deleted, and what differs is a conflict"
    fate = "goes to its trash" if call.args.accept_deletes else "is asked about"
    return f"what differs is made as it is here, and what only the sandbox has {fate}"


async def stop(call: Call) -> int:
    """End a sync and forget what both sides agreed on."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    for folder in await call.services.syncs.end(row):
        call.out.note(f"what it replaced on this machine is kept in {folder} for 7 days")
    call.out.result({"sandbox": row.name, "stopped": True})
    return 0


async def flush(call: Call) -> int:
    """Wait until everything saved by now is in the sandbox."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    pushed = await call.services.syncs.flush(row)
    call.out.result({"sandbox": row.name, "pushed": pushed})
    return 0


async def conflicts(call: Call) -> int:
    """Paths both sides changed."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    found = await call.services.syncs.conflicts(row)
    if call.out.is_json:
        call.out.json([one.as_json() for one in found])
    else:
        rows = [(one.path_text, one.local_words, one.guest_words) for one in found]
        names = [one.path_text for one in found]
        call.out.table(
            CONFLICT_COLUMNS, rows, cuts=CONFLICT_CUTS, is_wide=call.args.wide, names=names, empty="no conflicts"
        )
    return 0


async def _accept(call: Call, row: Registration) -> None:
    """What a person agrees to for the first comparison."""
    if call.args.accept_deletes:
        await call.services.syncs.accept_deletes(row)
    if call.args.accept_large:
        await call.services.syncs.accept_large(row)


async def _want(call: Call, wanted: Wanted) -> int:
    row = await call.services.sandboxes.find(call.args.sandbox)
    link = await call.services.syncs.want(row, wanted)
    if link.is_detached:
        start_runner(call.settings.home)
    elif not link.is_served:
        call.out.note(f"note: nobody acts on it now; `{_line_of(link)}` does")
    if not await call.services.syncs.obeyed(row):
        call.out.note("note: what it is doing now comes to its end first")
    call.out.result({"sandbox": row.name, "wanted": wanted.value})
    return 0


def _line_of(link: Link) -> str:
    """The line that takes a link up again."""
    spec = SyncSpec.of(link)
    more = (["--to", spec.to] if spec.to else []) + (["--mode", spec.mode] if spec.mode is not Mode.PUSH else [])
    return shlex.join(["sbx", "sync", link.sandbox, spec.root, *more])


def _finish(call: Call, name: str, status: Status) -> int:
    """What one comparison came to: problems and conflicts make the exit code 10."""
    call.out.result(status.as_json())
    carried = f"{counted(status.pushed, 'change')} carried over ({short_size(status.sent_bytes)})"
    call.out.note(f"{carried}, {entries_of(status.entries)}")
    if status.guest_changes:
        call.out.note(f"{status.guest_changes} changed in the sandbox only: `sbx sync pull {name}` shows them")
    problem = _problem(name, status)
    if problem is not None:
        raise problem
    return 0


def _problem(name: str, status: Status) -> SbxError | None:
    """What is not in the sandbox as it is here, and what tells more of it."""
    parts, hints = [], []
    if status.conflicts:
        parts.append(f"{counted(len(status.conflicts), 'path')} in conflict")
        hints.append(f"`sbx sync conflicts {name}` lists what is in conflict")
    if status.problems:
        parts.append(f"left alone: {first_of(status.problems)}")
        hints.append(f"`sbx sync status {name}` lists what is left alone")
    if not parts:
        return None
    said = status.as_json()
    return Incomplete(
        "; ".join(parts),
        hint=", ".join(hints),
        details={"conflicts": said["conflicts"], "problems": said["problems"]},
    )


def _state(link: Link) -> str:
    """The word for how a link is, as far as anybody knows."""
    return SyncView.of(link).state


def _link_json(link: Link) -> dict[str, object]:
    return {
        "sandbox": link.sandbox,
        "sandbox_id": link.sandbox_id,
        "context": link.context,
        **{key: link.spec.get(key) for key in ("root", "to", "mode")},
        "wanted": link.wanted.value,
        "detached": link.is_detached,
        "running": link.is_served,
        "seen_at": iso(link.seen_at),
        **link.status,
        "last_scan_age_s": SyncView.of(link).scan_age_s(datetime.now(UTC)),
        "state": _state(link),
    }


class _Teller:
    """Tells a person what a link does: each new state, and figures while much is carried over."""

    def __init__(self, call: Call, name: str) -> None:
        self._call = call
        self._name = name
        self._state: LinkState | None = None
        self._words = ""
        self._told_s = 0.0

    def tell(self, status: Status) -> None:
        """Called at every change."""
        now_s = time.monotonic()
        if status.state in (LinkState.HALTED, LinkState.OFFLINE) and status.words != self._words:
            hint = f"; {way_out(self._name, status.halts)}"
            is_halted = status.state is LinkState.HALTED
            self._call.out.note(f"{status.state.value}: {harmless_line(status.words)}{hint if is_halted else ''}")
        elif status.state is LinkState.WATCHING and self._state is not LinkState.WATCHING:
            self._tell_equal(status)
        elif status.state is LinkState.SCANNING:
            self._tell_look(status, now_s)
        elif status.pending and now_s - self._told_s >= _SHOW_EVERY_S:
            self._told_s = now_s
            self._call.out.progress(f"{counted(status.pending, 'change')} to go, {short_size(status.sent_bytes)} sent")
        self._state, self._words = status.state, status.words

    def _tell_look(self, status: Status, now_s: float) -> None:
        """A look that takes long, and, once, that there is more than most people mean to send."""
        if status.words and not self._words:
            self._call.out.note(f"note: {status.words}")
        if status.seen and now_s - self._told_s >= _SHOW_EVERY_S:
            self._told_s = now_s
            self._call.out.progress(f"looking: {entries_of(status.seen)} so far")

    def _tell_equal(self, status: Status) -> None:
        if self._call.out.is_json:
            self._call.out.json(status.as_json())
        else:
            conflicts = f", {len(status.conflicts)} in conflict" if status.conflicts else ""
            self._call.out.progress(f"equal: {entries_of(status.entries)}, {status.pushed} carried over{conflicts}")
