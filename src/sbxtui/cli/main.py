"""`sbx`: parse, run one verb, turn its end into an exit code."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from sbxtui.cli import parser
from sbxtui.cli.output import STDERR, STDOUT, Output, fill_closed_streams, settle_streams
from sbxtui.core.errors import AccessDenied, Interrupted, SbxError

if TYPE_CHECKING:
    import argparse

# With so many new objects it is worth looking for garbage among them: a verb makes few that are any, and one that goes
# through a large folder makes hundreds of thousands that it needs.
_YOUNG_OBJECTS = 20_000
_FAILED = 1
_COMMAND_FAILED = 125
_BROKEN_PIPE = 128 + signal.SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run `sbx` with `argv` (default: this process's) and return its exit code."""
    # What imports make lives on, and looking through it for garbage again and again is a tenth of a short verb's time.
    gc.disable()
    try:
        fill_closed_streams()
        code = _main(list(sys.argv[1:] if argv is None else argv))
        lost = settle_streams()
    except KeyboardInterrupt:
        # While an error was being told, or the streams were being settled.
        return Interrupted.exit_code
    finally:
        gc.enable()
    if lost is None or code:
        return code
    if isinstance(lost, BrokenPipeError):
        return _BROKEN_PIPE
    Output().error(_system_error(lost))
    return _FAILED


def mcp() -> int:
    """`sbx-mcp`: the server for agents."""
    return main(["--mcp", *sys.argv[1:]])


def _main(words: list[str]) -> int:
    # Before the line is understood, its words must do for how an error about it is shown.
    own = parser.own_words(words)
    out = Output(is_json="--json" in own)
    is_debug = "--debug" in own
    try:
        args = parser.parse(words)
        out = Output(is_json=args.json, is_quiet=args.quiet)
        return _dispatch(args, out)
    except SystemExit as exc:
        return int(exc.code or 0)
    except BrokenPipeError:
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return out.interrupted()
    except SbxError as exc:
        out.error(exc)
        _show_traceback(is_debug)
        return _error_code(words, exc)
    except OSError as exc:
        error = _system_error(exc)
        out.error(error)
        _show_traceback(is_debug)
        return _error_code(words, error)
    except BaseException as exc:  # noqa: BLE001 - the last boundary of this process
        return _unforeseen(exc, out, words, is_debug=is_debug)


def _unforeseen(exc: BaseException, out: Output, words: list[str], *, is_debug: bool) -> int:
    if _is_interrupt(exc):
        return out.interrupted()
    if not isinstance(exc, Exception):
        raise exc
    out.error(_fault(exc))
    _show_traceback(is_debug)
    return _error_code(words, None)


def _is_interrupt(exc: BaseException | None) -> bool:
    """Whether a Ctrl-C is behind this: it may land while the event loop is half built, or half closed."""
    while exc is not None:
        # By its name: asyncio is not imported for what needs no loop.
        if isinstance(exc, KeyboardInterrupt) or type(exc).__name__ == "CancelledError":
            return True
        exc = exc.__context__
    return False


def _dispatch(args: argparse.Namespace, out: Output) -> int:
    # Imported here: `--help`, `--version` and mistakes are answered without them.
    import asyncio
    import importlib
    import inspect
    import logging

    from sbxtui.cli.call import ACTOR, Call, can_open_dashboard, left_out_flags, with_flags
    from sbxtui.settings import load
    from sbxtui.wiring import Services

    logging.basicConfig(
        level=logging.DEBUG if args.debug else logging.ERROR, stream=sys.stderr, format="%(name)s: %(message)s"
    )
    settings = with_flags(load(setup_file=args.setup_file), args)
    for notice in settings.notices:
        out.note(f"note: {notice}")
    if not args.handler:
        args.handler = "sbxtui.cli.dashboard:tui" if can_open_dashboard() else "sbxtui.cli.listing:ls_default"
    module, _, function = args.handler.partition(":")
    run = getattr(importlib.import_module(module), function)
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    gc.enable()
    services = Services(settings, actor=ACTOR, context_name=args.context)
    try:
        if said := left_out_flags(args, services):
            out.note(f"note: {said}")
        result = run(Call(args, settings, out, services))
        if inspect.iscoroutine(result):
            result = asyncio.run(_until_told(result, out))
        for what, error in services.unsaved.items():
            out.note(f"note: not written down: {what}; {error.message}")
        return int(result or 0)
    finally:
        services.close()


async def _until_told(work: Coroutine[Any, Any, object], out: Output) -> object:
    """Run a verb; SIGTERM and a terminal that hangs up end it as Ctrl-C does, with everything it began taken back."""
    import asyncio

    task = asyncio.ensure_future(work)
    told: list[int] = []

    def end(number: int) -> None:
        told.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Whoever started us deaf to it, like nohup, wants us to go on.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not told:
            raise
        return 128 + told[0]
    except SbxError as exc:
        own = asyncio.current_task()
        is_interrupted = own is not None and own.cancelling() > 0
        if not told and not is_interrupted:
            raise
        # What failed on the way out is told, but the end that was asked for is what counts.
        out.note(f"note: {exc.message}")
        if told:
            return 128 + told[0]
        raise asyncio.CancelledError from exc


def _error_code(words: Sequence[str], error: SbxError | None) -> int:
    verb = parser.verb_of(words)
    if verb in parser.COMMAND_VERBS:
        return error.exit_code if error and error.exit_code in (124, 126, 127, 130, 255) else _COMMAND_FAILED
    return error.exit_code if error else _FAILED


def _system_error(exc: OSError) -> SbxError:
    """What the system refused, as people say it: a full disk behind stdout, a folder without permission."""
    where = f"{exc.filename}: " if exc.filename else ""
    kind = AccessDenied if isinstance(exc, PermissionError) else SbxError
    hint = "`sbx doctor` checks this machine"
    if exc.filename in (STDOUT, STDERR):
        hint = "what was to be written there is cut short: make room where it goes, or send it elsewhere"
    return kind(f"{where}{exc.strerror or exc}", hint=hint)


def _fault(exc: Exception) -> SbxError:
    return SbxError(
        f"sbx failed: {type(exc).__name__}: {exc}",
        hint="this is a fault of sbx; run again with --debug and report what it prints",
    )


def _show_traceback(is_debug: bool) -> None:
    if is_debug:
        import traceback

        traceback.print_exc(file=sys.stderr)
