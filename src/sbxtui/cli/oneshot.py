"""`run`: a sandbox for one command."""

from __future__ import annotations

from sbxtui.cli.call import Call
from sbxtui.cli.commands import command_of, interrupts, is_interactive_terminal, stdin_of, writer_of
from sbxtui.cli.ended import finish
from sbxtui.cli.lifecycle import options_of
from sbxtui.cli.recovery import recover
from sbxtui.cli.terminal import run_on_terminal
from sbxtui.core.errors import UsageError
from sbxtui.services.runnerctl import start_runner


async def run(call: Call) -> int:
    """Make a sandbox for one command, and remove it."""
    args = call.args
    command, is_lending = command_of(call), is_interactive_terminal(call)
    if args.image_arn:
        if args.image:
            raise UsageError("the image was named twice", hint="leave out --image or the ARN in front of --")
        args.image = args.image_arn
    options = options_of(args, call)
    await recover(call)
    # If this process is killed, the runner ends the sandbox.
    start_runner(call.settings.home)
    if is_lending:
        begun = call.services.one_shots.begin(args.name, options, command, on_progress=call.out.progress)
        return await run_on_terminal(call, begun, ends_when_left=True)
    with interrupts(call) as presses:
        result = await call.services.one_shots.run(
            args.name,
            options,
            command,
            stdin=stdin_of(call),
            on_output=writer_of(call),
            on_started=presses.job_started,
            on_progress=call.out.progress,
        )
    return finish(call, result)
