"""One call of `sbx`: its arguments, where output goes, and the services it may use."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
from typing import Any

from sbxtui.cli.asking import ask
from sbxtui.cli.output import Output, is_interactive
from sbxtui.core.errors import SbxError, UsageError
from sbxtui.core.model import ContextKind, Registration
from sbxtui.core.values import dataclass
from sbxtui.settings import Settings
from sbxtui.wiring import Services

ACTOR = "cli:you"


@dataclass(frozen=True, slots=True)
class Call:
    """What a verb gets. `args` holds the flags the parser of that verb declares."""

    args: argparse.Namespace
    settings: Settings
    out: Output
    services: Services

    async def confirm(self, question: str, *, consequences: list[str]) -> None:
        """Go on only if the person agrees to the consequences.

        Raises:
            UsageError: Nobody can be asked and `--yes` was not given, or the answer was no; nothing was done.
        """
        if self.args.yes:
            return
        for line in consequences:
            self.out.note(f"  {line}")
        if self.args.no_input or not sys.stdin.isatty():
            raise UsageError(f"{question} needs an answer, and nobody can be asked here", hint="add --yes")
        if not await ask(f"{question}?"):
            raise UsageError("not confirmed: nothing was done")


async def stopped_words(call: Call, row: Registration) -> str:
    """What a link in the foreground says when it ended and nobody here asked for that."""
    rows = await asyncio.to_thread(call.services.registry.list, row.context)
    return "stopped" if any(one.id == row.id for one in rows) else f"stopped: `{row.name}` was removed"


_FLAGS = ("context", "region", "profile", "isolation")


def with_flags(settings: Settings, args: argparse.Namespace) -> Settings:
    """Settings with the global flags laid on top."""
    given: dict[str, Any] = {key: getattr(args, key) for key in _FLAGS if getattr(args, key)}
    if getattr(args, "no_verify_tls", False):
        given["verify_tls"] = False
    sources = {**settings.sources, **{key: "flag" for key in given}}
    return dataclasses.replace(settings, **given, sources=sources)


def left_out_flags(args: argparse.Namespace, services: Services) -> str:
    """What is said of flags of AWS that the context in use has no use for; empty where there are none."""
    given = [f"--{name}" for name in ("region", "profile") if getattr(args, name)]
    # Contexts are made of these flags.
    if not given or args.handler.startswith("sbxtui.cli.contexts:"):
        return ""
    try:
        context = services.context
    except SbxError:
        # The verb itself says it, or does not need one.
        return ""
    if context.kind is not ContextKind.LOCAL:
        return ""
    return (
        f"{' and '.join(given)} left out: context `{context.name}` is this machine; `sbx context add` makes one of AWS"
    )


def can_open_dashboard() -> bool:
    """Whether the three standard streams are a terminal the dashboard can draw on."""
    return is_interactive()
