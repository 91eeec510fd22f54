"""`sbx` and `sbx tui`: the dashboard."""

from __future__ import annotations

import gc
from dataclasses import replace

from sbxtui.cli.call import Call, can_open_dashboard
from sbxtui.core.errors import UsageError
from sbxtui.tui.quieting import quiet_terminal
from sbxtui.wiring import Services


def tui(call: Call) -> int:
    """Open the dashboard.

    Raises:
        UsageError: There is no terminal to draw on.
    """
    if not can_open_dashboard():
        raise UsageError("the dashboard needs a terminal", hint="`sbx ls` prints the list")
    settings, named = call.settings, call.args.context
    if getattr(call.args, "read_only", False):
        settings = replace(settings, ui=replace(settings.ui, read_only=True))
    # What is made until the first frame stays: looking through it for what does not would only delay that.
    gc.disable()
    with quiet_terminal() as found:
        from sbxtui.tui.app import run_dashboard

        # Another context than the first is chosen in the dashboard; the flag names the one to begin with.
        return run_dashboard(
            settings, lambda name: Services(settings, actor="tui:you", context_name=name or named), terminal=found
        )
