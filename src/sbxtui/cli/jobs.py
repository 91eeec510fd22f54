"""`jobs`, `output`, `kill`: what runs in sandboxes, what it said, and ending it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import aclosing

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.cli.output import stdout_is_terminal
from sbxtui.cli.plaintext import PlainText
from sbxtui.cli.tail import LastLines
from sbxtui.core.documents import bytes_json, exit_document, job_json
from sbxtui.core.errors import UsageError
from sbxtui.core.jobs import Channel, Job, JobExit, JobGap, JobOutput, JobPiece, signal_name


async def jobs(call: Call) -> int:
    """List jobs: those that run, or all that are known."""
    lists = call.services.job_lists
    if call.args.sandbox:
        row = await call.services.sandboxes.find(call.args.sandbox)
        record = await call.services.sandboxes.record(row.id)
        listing = await lists.of(row, record.state)
    else:
        listing = await lists.all()
    shown = [job for job in listing.jobs if call.args.all or not job.is_over]
    for problem in listing.problems:
        call.out.note(f"note: {problem}")
    if call.out.is_json:
        call.out.json([job_json(job) for job in shown])
        return 0
    rows = [show.job_row(job) for job in shown]
    hidden = len(listing.jobs) - len(shown)
    empty = (
        f"nothing runs; --all shows {hidden} that ended" if hidden else "no jobs: `sbx exec SANDBOX -- CMD` begins one"
    )
    names = [job.id for job in shown]
    call.out.table(show.JOB_COLUMNS, rows, cuts=show.JOB_CUTS, is_wide=call.args.wide, names=names, empty=empty)
    return 0


async def output(call: Call) -> int:
    """Print what a job has said so far, or go on with it as it is said."""
    args = call.args
    if args.start is not None and args.tail is not None:
        raise UsageError("--from and --tail exclude each other")
    job = await find_job(call)
    plain = plain_text(call, job)
    last = None if args.tail is None else LastLines(args.tail)
    cursor = args.start or 0
    if last is not None:
        cursor = await _skip_to_tail(call, job, last)
        for line in last.pieces():
            await _show(call, line, plain)
        if not args.follow:
            return 0
    call.out.ends_by_interrupt = args.follow
    pieces = call.services.jobs.follow(job, cursor=cursor, until_quiet=not args.follow)
    async with aclosing(pieces):
        async for piece in pieces:
            await _show(call, piece, plain)
    if plain is not None:
        await call.out.pass_on(plain.rest())
    return 0


async def kill(call: Call) -> int:
    """End a job, or send it one signal."""
    name = signal_name(call.args.signal) if call.args.signal else ""
    job = await find_job(call)
    await (call.services.jobs.signal(job, name) if name else call.services.jobs.end(job))
    call.out.line(job.id)
    call.out.result({"job": job.id, "sandbox": job.sandbox, "signal": name or "TERM"})
    return 0


async def find_job(call: Call) -> Job:
    """The job of a line that says `JOB` or `SANDBOX JOB`.

    Raises:
        NotFound: There is none. AmbiguousReference: Several fit. UsageError: The only word is a sandbox's name.
    """
    if call.args.sandbox:
        return await call.services.job_lists.find(call.args.job, await call.services.sandboxes.find(call.args.sandbox))
    rows = await asyncio.to_thread(call.services.registry.list, call.services.context.name)
    if call.args.job in {row.name for row in rows}:
        # It may begin a job's id, too, of any sandbox: nobody means that.
        name, verb = call.args.job, call.args.verb
        raise UsageError(
            f"`{name}` is a sandbox, and no job", hint=f"`sbx jobs {name}` lists its jobs; sbx {verb} {name} JOB"
        )
    return await call.services.job_lists.find(call.args.job)


def plain_text(call: Call, job: Job) -> PlainText | None:
    """What makes old output of a job's terminal harmless for ours; None where its bytes are to pass as they are."""
    return PlainText() if job.has_terminal and stdout_is_terminal() and not call.args.raw else None


async def _skip_to_tail(call: Call, job: Job, last: LastLines) -> int:
    """Read all that is kept into `last`; returns the cursor behind it."""
    cursor = 0
    pieces = call.services.jobs.follow(job, until_quiet=True)
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, JobOutput):
                last.add(piece)
                cursor = piece.cursor + len(piece.data)
            elif isinstance(piece, JobGap):
                last.clear()
                cursor = piece.end
    return cursor


async def _show(call: Call, piece: JobPiece, plain: PlainText | None) -> None:
    if call.out.is_json:
        call.out.json(_piece_json(piece))
        return
    match piece:
        case JobOutput():
            data = piece.data if plain is None else plain.of(piece.data)
            await call.out.pass_on(data, is_stderr=piece.channel is Channel.ERR)
        case JobGap():
            call.out.note(f"note: {piece.end - piece.start} bytes of output are no longer kept here")
        case JobExit():
            call.out.note(f"note: {exit_words(piece)}")


def exit_words(ending: JobExit) -> str:
    """How a job ended, for people."""
    if ending.timed_out:
        return "the job ran out of its time and was killed"
    if ending.code is None:
        known = ending.signal in {one.value for one in signal.Signals}
        return f"the job was ended by {signal.Signals(ending.signal).name if known else f'signal {ending.signal}'}"
    return f"the job ended with exit code {ending.code}"


def _piece_json(piece: JobPiece) -> dict[str, object]:
    match piece:
        case JobOutput():
            return {"cursor": piece.cursor, "channel": piece.channel.value, **bytes_json("data", piece.data)}
        case JobGap():
            return {"gap": {"from": piece.start, "to": piece.end}}
        case JobExit():
            return {"exit": exit_document(piece)}
