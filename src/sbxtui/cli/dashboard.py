"""`sbx` and `sbx tui`: the dashboard."""

from __future__ import annotations

from sbxtui.cli.call import Call, can_open_dashboard
from sbxtui.core.errors import UsageError
from sbxtui.wiring import Services


def tui(call: Call) -> int:
    """Open the dashboard.

    Raises:
        UsageError: There is no terminal to draw on.
    """
    if not can_open_dashboard():
        raise UsageError("the dashboard needs a terminal", hint="`sbx ls` prints the list")
    from sbxtui.tui.app import run_dashboard

    settings, context_name = call.settings, call.args.context
    return run_dashboard(settings, lambda: Services(settings, actor="tui:you", context_name=context_name))
