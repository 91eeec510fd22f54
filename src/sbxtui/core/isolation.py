"""How strongly sandboxes are isolated, as an order: what a wish for at least some isolation accepts."""

from __future__ import annotations

from sbxtui.core.errors import RuntimeUnavailable, UsageError

# Weakest first. The last is what the platform gives; the others are runtimes of the local cloud.
TIERS = ("process", "bubblewrap", "gvisor", "firecracker")


def accepts(wish: str, tier: str) -> bool:
    """Whether a tier grants a wish: `gvisor` is exactly that one, `isolation>=gvisor` (or `>=gvisor`) at least that.

    Raises:
        UsageError: The wish names no tier.
    """
    named = wish.removeprefix("isolation").strip()
    is_least = named.startswith(">=")
    named = named.removeprefix(">=").strip()
    if named not in TIERS:
        raise UsageError(
            f"`{wish}` names no isolation", hint=f"choose one of {', '.join(TIERS)}, or `isolation>=gvisor`"
        )
    if not is_least:
        return tier == named
    return tier in TIERS and TIERS.index(tier) >= TIERS.index(named)


def require(wish: str, tier: str, *, hint: str) -> None:
    """Refuse a tier that does not grant the wish; an empty wish accepts all.

    Raises:
        RuntimeUnavailable: It does not; nothing was started.
        UsageError: The wish names no tier.
    """
    if wish and not accepts(wish, tier):
        raise RuntimeUnavailable(f"isolation `{wish}` was asked for, and this is `{tier}`", hint=hint)


def short_isolation(words: str) -> str:
    """The isolation in one word for a table: `gVisor` of `gVisor (user-space kernel)`."""
    return words.split(" ", 1)[0]
