"""What stops a sync before it can do harm."""

from __future__ import annotations

import pytest

from sbxtui.services.sync.halts import Roots, find_halts, find_large_seed
from sbxtui.services.sync.model import Kind, Listing, Mode, State
from sbxtui.services.sync.plan import plan

ROOTS = Roots("1:2", "g1:e1:3:4")
FILE = State(Kind.FILE, b"a")


def tree(count: int, *, first: int = 0) -> dict[bytes, State]:
    return {b"f%d" % number: FILE for number in range(first, count)}


def codes(
    base: dict[bytes, State],
    local: Listing,
    guest: Listing,
    *,
    agreed: Roots | None = ROOTS,
    now: Roots = ROOTS,
    mode: Mode = Mode.TWO_WAY,
) -> list[str]:
    return [
        halt.code for halt in find_halts(base, local, guest, plan(base, local, guest, mode), agreed=agreed, now=now)
    ]


def test_equal_trees_on_the_same_roots_go_on() -> None:
    assert codes(tree(9), Listing(tree(9)), Listing(tree(9))) == []


def test_first_contact_has_nothing_to_compare_roots_with() -> None:
    assert codes({}, Listing(tree(9)), Listing({}), agreed=None) == []


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (Roots("", ROOTS.guest), "local_root_missing"),
        (Roots(ROOTS.local, ""), "guest_root_missing"),
        (Roots("9:9", ROOTS.guest), "local_root_replaced"),
        (Roots(ROOTS.local, "g2:e1:3:4"), "guest_root_replaced"),
    ],
)
def test_a_root_that_went_or_is_another_one_halts(now: Roots, code: str) -> None:
    assert codes(tree(9), Listing(tree(9)), Listing(tree(9)), now=now) == [code]


def test_a_side_that_was_emptied_halts() -> None:
    assert "local_emptied" in codes(tree(9), Listing({}), Listing(tree(9)))
    assert "guest_emptied" in codes(tree(9), Listing(tree(9)), Listing({}))
    assert codes(tree(1), Listing({}), Listing(tree(1))) == []


def test_a_listing_that_was_cut_off_halts() -> None:
    assert codes(tree(9), Listing({}, is_complete=False), Listing(tree(9))) == ["local_listing_incomplete"]
    assert codes(tree(9), Listing(tree(9)), Listing({}, is_complete=False)) == ["guest_listing_incomplete"]


def test_many_entries_that_cannot_be_read_halt() -> None:
    unknown = frozenset(tree(40, first=20))
    assert codes(tree(40), Listing(tree(20), unknown=unknown), Listing(tree(40))) == ["local_unreadable"]


def test_a_guest_that_deletes_much_halts_and_a_person_that_does_so_goes_on() -> None:
    base = tree(400)
    few, many = Listing(tree(400, first=90)), Listing(tree(400, first=150))
    assert codes(base, Listing(base), few) == []
    assert codes(base, Listing(base), many) == ["many_local_deletes"]
    assert codes(base, many, Listing(base)) == []
    assert codes(tree(20), Listing(tree(20)), Listing(tree(20, first=19))) == ["many_local_deletes"]
    assert codes(tree(20), Listing(tree(20)), Listing(tree(20, first=10))) == []
    assert codes(base, Listing(base), many, mode=Mode.PUSH) == []


def test_a_mirror_that_would_delete_at_first_contact_halts() -> None:
    assert codes({}, Listing({}), Listing(tree(3)), agreed=None, mode=Mode.MIRROR) == ["first_contact_deletes"]
    assert codes({}, Listing(tree(3)), Listing({}), agreed=None, mode=Mode.MIRROR) == []


def test_a_first_comparison_that_would_send_very_much_halts_and_names_where_the_most_is() -> None:
    gib = 1024**3
    assert not list(find_large_seed({b"a": gib, b"b": gib}))
    (halt,) = find_large_seed({b"data/x": gib, b"data/y/z": gib, b"film": gib // 2, b"src/a": 1})
    assert halt.code == "large_seed"
    assert halt.words == "2.5 GiB in 4 files would be sent; the most of it: data/ 2.0 GiB, film 512 MiB, src/ 1 B"
