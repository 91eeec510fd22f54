"""How strongly sandboxes are isolated, as an order: what a wish for at least some isolation accepts."""

from __future__ import annotations

from sbxtui.core.errors import RuntimeUnavailable, UsageError
from sbxtui.core.values import dataclass

# Weakest first. The last is what the platform gives; the others are runtimes of the local cloud.
TIERS = ("process", "bubblewrap", "gvisor", "microvm", "firecracker")

# How the words of each begin.
_BY_WORDS = {
    "process": "process",
    "namespaces (bubblewrap)": "bubblewrap",
    "gVisor": "gvisor",
    "microVM": "microvm",
    "Firecracker": "firecracker",
}


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why sandboxes get less isolation than there is; no words where they get the most.

    `is_fault`: what is stronger is there and unsound, which somebody should mend; else it is merely not there.
    """

    words: str = ""
    is_fault: bool = False


NO_SHORTFALL = Shortfall()


def accepts(wish: str, tier: str) -> bool:
    """Whether a tier grants a wish: `gvisor` is exactly that one, `isolation>=gvisor` (or `>=gvisor`) at least that.

    Raises:
        UsageError: The wish names no tier.
    """
    named, is_least = check_wish(wish)
    if not is_least:
        return tier == named
    return tier in TIERS and TIERS.index(tier) >= TIERS.index(named)


def check_wish(wish: str) -> tuple[str, bool]:
    """The tier a wish names, and whether more than that is as welcome.

    Raises:
        UsageError: It names no tier.
    """
    named = wish.removeprefix("isolation").strip()
    is_least = named.startswith(">=")
    named = named.removeprefix(">=").strip()
    if named not in TIERS:
        raise UsageError(
            f"`{wish}` names no isolation", hint=f"choose one of {', '.join(TIERS)}, or `isolation>=gvisor`"
        )
    return named, is_least


def require(wish: str, tier: str, *, hint: str, whose: str = "this") -> None:
    """Refuse a tier that does not grant the wish; an empty wish accepts all.

    Args:
        wish: As in `accepts`.
        tier: What there is.
        hint: What to do when that is too little.
        whose: What has this tier, for people.

    Raises:
        RuntimeUnavailable: It does not; nothing was started.
        UsageError: The wish names no tier.
    """
    if wish and not accepts(wish, tier):
        has = f"`{tier}`" if tier else "none that is known here"
        raise RuntimeUnavailable(f"isolation `{wish}` was asked for, and {whose} has {has}", hint=hint)


def tier_of(words: str) -> str:
    """The tier that stands behind the words people are told; empty for words nobody here uses."""
    return next((tier for start, tier in _BY_WORDS.items() if words.startswith(start)), "")


def short_isolation(words: str) -> str:
    """The isolation in one word for a table: `gVisor` of `gVisor (user-space kernel)`."""
    return words.split(" ", 1)[0]
