"""Run one of our programs and SIGKILL it at a named point, as a power cut would.

    python -m tests.support.killed_at PLACE:before|after PROGRAM [ARG…]

PLACE is `module:Class.method` or `module:function`; PROGRAM is a module to run as `python -m` would. The process dies
the first time the place is entered (before) or left (after), so that what it did until then is all that happened.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import runpy
import signal
import sys
from collections.abc import Callable
from typing import Any


def arm(point: str) -> None:
    """Make this process die at `point`."""
    place, _, when = point.rpartition(":")
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    setattr(owner, name, _deadly(getattr(owner, name), is_before=when == "before"))


def _deadly(function: Callable[..., Any], *, is_before: bool) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
            if not is_before:
                await function(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        return wrapped_async

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not is_before:
            function(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    return wrapped


if __name__ == "__main__":
    arm(sys.argv[1])
    program = sys.argv[2]
    sys.argv = [program, *sys.argv[3:]]
    runpy.run_module(program, run_name="__main__", alter_sys=True)
