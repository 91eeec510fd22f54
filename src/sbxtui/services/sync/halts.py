"""When a plan must not be carried out: what looks like a lost folder, another sandbox or a broken listing.

A halt changes nothing on either side and forgets nothing; a person decides what is true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sbxtui.core.text import counted, harmless_line, short_size
from sbxtui.services.sync.model import Change, Listing, Op, Path, Plan, Side, State
from sbxtui.services.sync.status import entries_of, shown
from sbxtui.store.ancestors import Taken

FIRST_DELETES = "first_contact_deletes"
LARGE_SEED = "large_seed"
MANY_DELETES = "many_local_deletes"
_NOTHING = Taken()
_REMOVALS = (Op.DELETE, Op.RMDIR)
_MIN_LOCAL_DELETES = 50
_MAX_LOCAL_DELETES_SHARE = 0.25
# Of a small tree, nearly all.
_FEW_LOCAL_DELETES = 5
_MAX_SMALL_TREE_SHARE = 0.75
_MIN_ENTRIES_TO_EMPTY = 2
# Nobody means to send a data set, or a build, that was forgotten in the folder.
_LARGE_SEED_BYTES = 2 * 1024**3
_SHOWN_PLACES = 3
_MAX_UNKNOWN_SHARE = 0.01
_MIN_UNKNOWN = 10


@dataclass(frozen=True, slots=True)
class Roots:
    """What tells a side's root from another one at the same place; empty when nothing is there.

    Attributes:
        local: Device and inode of the folder.
        guest: The guest's id and epoch, and its folder's device and inode: a sandbox made anew differs.
    """

    local: str
    guest: str


@dataclass(frozen=True, slots=True)
class Halt:
    """One reason to stop. `code` is for programs, `words` say what was seen and what is the danger."""

    code: str
    words: str


def find_halts(
    base: Mapping[Path, State],
    local: Listing,
    guest: Listing,
    planned: Plan,
    *,
    agreed: Roots | None,
    now: Roots,
    taken: Taken = _NOTHING,
) -> tuple[Halt, ...]:
    """Why `planned` must not be carried out; empty when it may.

    Args:
        base: What both sides last agreed on.
        local: This machine's folder.
        guest: The sandbox's.
        planned: Made from these.
        agreed: The roots `base` belongs to; None at first contact.
        now: The roots that were listed.
        taken: What came to this machine by itself since a person looked last.
    """
    removals = [change for change in planned.changes if change.op in _REMOVALS]
    return tuple(
        [
            *_other_roots(agreed, now),
            *_first_contact(agreed, removals),
            *_listings(Side.LOCAL, "this machine's folder", base, local),
            *_listings(Side.GUEST, "the sandbox's folder", base, guest),
            *_too_many_deletes(base, removals, taken),
        ]
    )


def find_large_seed(contents: Mapping[Path, int]) -> Iterator[Halt]:
    """The reason when the first comparison would send very much; it names the places that hold the most.

    Args:
        contents: The files that would be sent, and their sizes in bytes.
    """
    total_bytes = sum(contents.values())
    if total_bytes <= _LARGE_SEED_BYTES:
        return
    places: Counter[Path] = Counter()
    for path, size_bytes in contents.items():
        first, slash, _ = path.partition(b"/")
        places[first + slash] += size_bytes
    largest = ", ".join(f"{_line(path)} {short_size(size)}" for path, size in places.most_common(_SHOWN_PLACES))
    files = counted(len(contents), "file")
    yield Halt(LARGE_SEED, f"{short_size(total_bytes)} in {files} would be sent; the most of it: {largest}")


def find_lost_root(side: Side) -> Halt:
    """The reason when there is nothing to list on a side."""
    now = Roots("" if side is Side.LOCAL else "there", "" if side is Side.GUEST else "there")
    return next(_other_roots(None, now))


def _other_roots(agreed: Roots | None, now: Roots) -> Iterator[Halt]:
    for place, was, found in (
        ("local", agreed.local if agreed else "", now.local),
        ("guest", agreed.guest if agreed else "", now.guest),
    ):
        name = "this machine's folder" if place == "local" else "the sandbox's folder"
        if not found:
            yield Halt(f"{place}_root_missing", f"{name} is not there any more, or is no folder")
        elif was and was != found:
            yield Halt(f"{place}_root_replaced", f"{name} is another one than the one that was synced")


def _first_contact(agreed: Roots | None, removals: Sequence[Change]) -> Iterator[Halt]:
    """Only a mirror deletes at first contact, and then nobody has seen yet what it takes away."""
    if agreed is None and removals:
        yield Halt(
            FIRST_DELETES,
            f"{entries_of(len(removals))} that only the sandbox has would be deleted",
        )


def _listings(side: Side, name: str, base: Mapping[Path, State], listing: Listing) -> Iterator[Halt]:
    if not listing.is_complete:
        yield Halt(f"{side.value}_listing_incomplete", f"{name} could not be listed to its end")
        return
    if len(base) >= _MIN_ENTRIES_TO_EMPTY and not (listing.entries or listing.unknown or listing.ignored):
        yield Halt(f"{side.value}_emptied", f"{name} is empty, and had {entries_of(len(base))}")
    known = len(listing.entries)
    if len(listing.unknown) > max(_MIN_UNKNOWN, known * _MAX_UNKNOWN_SHARE):
        yield Halt(f"{side.value}_unreadable", f"{entries_of(len(listing.unknown))} of {name} cannot be read")


def _too_many_deletes(base: Mapping[Path, State], removals: Iterable[Change], taken: Taken) -> Iterator[Halt]:
    """Only towards this machine: what was deleted here was deleted by its owner, and the listing proved it.

    Deletions that come one by one count together, but for those of what was not there when a person looked last.
    """
    now = frozenset(one.path for one in removals if one.side is Side.LOCAL)
    if not now:
        return
    since = (now - taken.added) | taken.gone
    size_then = len(base.keys() - taken.added) + len(taken.gone - base.keys())
    if _is_too_many(len(now), len(base)):
        yield Halt(MANY_DELETES, f"the sandbox deleted {len(now)} of {entries_of(len(base))} of this machine's folder")
    elif _is_too_many(len(since), size_then):
        yield Halt(
            MANY_DELETES,
            f"the sandbox deleted {len(since)} of {entries_of(size_then)} that this machine's folder had when somebody "
            "looked last",
        )


def _line(path: Path) -> str:
    return harmless_line(shown(path))


def _is_too_many(gone: int, size: int) -> bool:
    is_many = gone > max(_MIN_LOCAL_DELETES, size * _MAX_LOCAL_DELETES_SHARE)
    return is_many or gone > max(_FEW_LOCAL_DELETES, size * _MAX_SMALL_TREE_SHARE)
