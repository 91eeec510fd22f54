"""Which sandboxes a person means: a name, an id, a unique prefix, a glob, or all of them."""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable, Sequence

from sbxtui.core.errors import SandboxNotFound, SbxError, UsageError
from sbxtui.core.model import Context, Registration
from sbxtui.core.values import dataclass
from sbxtui.store.registry import Registry
from sbxtui.store.rows import known

_AT_ONCE = 8
_GLOB_SIGNS = set("*?[")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one of several sandboxes; `error` is None when it worked."""

    name: str
    error: SbxError | None = None
    words: str = ""


def resolve_targets(
    registry: Registry, context: Context, references: Sequence[str], *, is_all: bool
) -> tuple[list[Registration], list[Outcome]]:
    """Rows for what was named, each once, in the order named; of several names, those that failed hold up no other.

    Raises:
        UsageError: Nothing was named, or names were given together with "all".
        SandboxNotFound: The only name, id or prefix fits nothing, or the only glob matches nothing.
        AmbiguousReference: The only prefix fits more than one.
    """
    if is_all and references:
        raise UsageError("--all and names exclude each other", hint="leave one of them out")
    if is_all:
        return registry.list(context.name), []
    if not references:
        raise UsageError("no sandbox was named", hint="give a name, or --all")
    found: dict[str, Registration] = {}
    failed: list[Outcome] = []
    for reference in references:
        try:
            found.update({row.name: row for row in _matches(registry, context, reference)})
        except SbxError as exc:
            if len(references) == 1:
                raise
            failed.append(Outcome(reference, error=exc))
    return list(found.values()), failed


async def for_each(targets: Sequence[Registration], act: Callable[[Registration], Awaitable[str]]) -> list[Outcome]:
    """Run `act` on every target, a few at a time; a failure of one does not stop the others."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(target: Registration) -> Outcome:
        async with gate:
            try:
                return Outcome(target.name, words=await act(known(target)))
            except SbxError as exc:
                return Outcome(target.name, error=exc)

    return await asyncio.gather(*(one(target) for target in targets))


def _matches(registry: Registry, context: Context, reference: str) -> list[Registration]:
    if not _GLOB_SIGNS & set(reference):
        return [registry.find(context.name, reference)]
    rows = [row for row in registry.list(context.name) if fnmatch.fnmatchcase(row.name, reference)]
    if not rows:
        raise SandboxNotFound(
            f"no sandbox of context `{context.name}` matches `{reference}`", hint="`sbx ls` lists them"
        )
    return rows
