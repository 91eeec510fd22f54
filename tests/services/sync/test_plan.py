"""The three-way planner: the table of its rules, and laws that hold for any three trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbxtui.core.errors import UsageError
from sbxtui.services.sync.model import DIR, Change, Kind, Listing, Mode, Op, Plan, Side, State, ancestors, parent_of
from sbxtui.services.sync.plan import _Planner, plan

Tree = dict[bytes, State]


def file(content: str, *, x: bool = False) -> State:
    return State(Kind.FILE, content.encode(), x)


def link(target: str) -> State:
    return State(Kind.LINK, target.encode())


def planned(base: Tree, local: Tree, guest: Tree, mode: Mode = Mode.TWO_WAY) -> Plan:
    return plan(base, Listing(local), Listing(guest), mode)


def steps(result: Plan) -> list[tuple[str, str, str]]:
    return [(change.side.value, change.op.value, change.path.decode()) for change in result.changes]


def applied(tree: Mapping[bytes, State], changes: Iterable[Change], side: Side) -> Tree:
    """What a careful executor makes of a tree: every step must be possible when its turn comes."""
    now = dict(tree)
    for change in changes:
        if change.side is not side:
            continue
        assert now.get(change.path) == change.expect, change
        above = parent_of(change.path)
        match change.op:
            case Op.DELETE:
                assert not now.pop(change.path).is_dir
            case Op.RMDIR:
                assert now.pop(change.path).is_dir
                assert not any(path.startswith(change.path + b"/") for path in now), change
            case _:
                assert change.entry is not None and (not above or now[above].is_dir), change
                assert (change.op is Op.MKDIR) is change.entry.is_dir
                now[change.path] = change.entry
    return now


A, B, C = file("a"), file("b"), file("c")
TWO, PUSH, MIRROR = Mode.TWO_WAY, Mode.PUSH, Mode.MIRROR


@pytest.mark.parametrize(
    ("base", "local", "guest", "mode", "expected"),
    [
        pytest.param(A, B, A, TWO, ["guest put"], id="edited here"),
        pytest.param(A, A, B, TWO, ["local put"], id="edited there"),
        pytest.param(A, A, B, PUSH, [], id="edited there, push"),
        pytest.param(A, A, B, MIRROR, ["guest put"], id="edited there, mirror"),
        pytest.param(A, None, A, TWO, ["guest delete"], id="deleted here"),
        pytest.param(A, A, None, TWO, ["local delete"], id="deleted there"),
        pytest.param(A, A, None, PUSH, [], id="deleted there, push"),
        pytest.param(A, A, None, MIRROR, ["guest put"], id="deleted there, mirror"),
        pytest.param(A, None, B, TWO, ["local put"], id="deleted here, edited there"),
        pytest.param(A, None, B, PUSH, [], id="deleted here, edited there, push"),
        pytest.param(A, B, None, PUSH, ["guest put"], id="edited here, deleted there"),
        pytest.param(A, B, C, TWO, [], id="edited on both"),
        pytest.param(A, B, C, MIRROR, ["guest put"], id="edited on both, mirror"),
        pytest.param(A, B, B, TWO, [], id="edited alike"),
        pytest.param(None, A, None, PUSH, ["guest put"], id="new here"),
        pytest.param(None, None, A, PUSH, [], id="new there, push"),
        pytest.param(None, None, A, MIRROR, ["guest delete"], id="new there, mirror"),
        pytest.param(None, A, B, TWO, [], id="new on both"),
        pytest.param(A, file("a", x=True), A, TWO, ["guest chmod"], id="made executable here"),
        pytest.param(A, A, file("a", x=True), TWO, ["local chmod"], id="made executable there"),
        pytest.param(A, file("a", x=True), B, TWO, ["guest chmod", "local put"], id="bit here, content there"),
        pytest.param(A, B, file("a", x=True), PUSH, ["guest put"], id="content here, bit there"),
        pytest.param(A, link("t"), A, TWO, ["guest link"], id="became a link"),
        pytest.param(link("t"), link("u"), link("t"), PUSH, ["guest link"], id="link led elsewhere"),
        pytest.param(A, DIR, A, TWO, ["guest delete", "guest mkdir"], id="became a folder"),
        pytest.param(DIR, A, DIR, TWO, ["guest rmdir", "guest put"], id="an empty folder became a file"),
        pytest.param(DIR, DIR, A, TWO, ["local rmdir", "local put"], id="the same, there"),
    ],
)
def test_every_rule_of_the_table(
    base: State | None, local: State | None, guest: State | None, mode: Mode, expected: list[str]
) -> None:
    trees: list[Tree] = [{} if entry is None else {b"p": entry} for entry in (base, local, guest)]
    result = planned(trees[0], trees[1], trees[2], mode)
    assert [f"{side} {op}" for side, op, _ in steps(result)] == expected


def test_edits_on_both_sides_are_a_conflict_that_names_all_three_and_stops_nothing_else() -> None:
    result = planned({b"p": A, b"q": A}, {b"p": B, b"q": B}, {b"p": C, b"q": A})
    assert [(one.path, one.base, one.local, one.guest) for one in result.conflicts] == [(b"p", A, B, C)]
    assert steps(result) == [("guest", "put", "q")]


def test_what_only_the_guest_changed_is_listed_in_push_mode_and_left() -> None:
    result = planned({b"p": A, b"gone": A}, {b"p": A, b"gone": A}, {b"p": B, b"new": C}, PUSH)
    assert [one.path for one in result.guest_changes] == [b"gone", b"new", b"p"]
    assert not result.changes and not result.conflicts


def test_a_folder_deleted_here_goes_there_but_for_what_was_written_in_it() -> None:
    base = {b"d": DIR, b"d/old": A, b"d/edited": A, b"d/e": DIR, b"d/e/old": A}
    guest = {**base, b"d/edited": B, b"d/new": C}
    two_way = planned(base, {}, guest)
    assert steps(two_way) == [
        ("guest", "delete", "d/old"),
        ("guest", "delete", "d/e/old"),
        ("guest", "rmdir", "d/e"),
        ("local", "mkdir", "d"),
        ("local", "put", "d/edited"),
        ("local", "put", "d/new"),
    ]
    assert two_way.survivors == (b"d/edited",)
    push = planned(base, {}, guest, PUSH)
    assert {path for side, _, path in steps(push)} == {"d/old", "d/e/old", "d/e"}
    assert push.kept_dirs == (b"d",)
    assert [one.path for one in push.guest_changes] == [b"d/edited", b"d/new"]


def test_a_folder_that_became_a_file_replaces_it_only_if_nothing_new_is_in_it() -> None:
    base = {b"p": DIR, b"p/a": A, b"p/b": A}
    assert steps(planned(base, {b"p": B}, base)) == [
        ("guest", "delete", "p/b"),
        ("guest", "delete", "p/a"),
        ("guest", "rmdir", "p"),
        ("guest", "put", "p"),
    ]
    result = planned(base, {b"p": B}, {**base, b"p/a": C})
    assert not result.changes
    assert [one.path for one in result.conflicts] == [b"p"]


def test_ignored_output_keeps_its_folder_and_is_forgotten_and_never_deleted() -> None:
    base = {b"d": DIR, b"d/src": A, b"d/build": DIR, b"d/build/o": A}
    guest = Listing({b"d": DIR, b"d/src": A}, ignored=frozenset({b"d/build"}))
    result = plan(base, Listing({}), guest, TWO)
    assert steps(result) == [("guest", "delete", "d/src")]
    assert result.kept_dirs == (b"d",)
    assert result.agreed == {b"d/build": None, b"d/build/o": None}


@pytest.mark.parametrize("side", [Side.LOCAL, Side.GUEST])
def test_what_one_side_cannot_tell_about_is_left_alone_on_both(side: Side) -> None:
    base = {b"d": DIR, b"d/p": A, b"d/p/x": A}
    with_it = Listing({b"d": DIR, b"d/p": B})
    without = Listing({b"d": DIR}, unknown=frozenset({b"d/p"}))
    local, guest = (without, with_it) if side is Side.LOCAL else (with_it, without)
    result = plan(base, local, guest, TWO)
    assert not result.changes and not result.conflicts and not result.agreed


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("side", [Side.LOCAL, Side.GUEST])
def test_nothing_follows_from_a_listing_that_was_cut_off(mode: Mode, side: Side) -> None:
    cut, whole = Listing({}, is_complete=False), Listing({b"p": A})
    local, guest = (cut, whole) if side is Side.LOCAL else (whole, cut)
    assert plan({b"p": A}, local, guest, mode) == Plan()


@pytest.mark.parametrize("path", [b"", b"/etc/x", b"../x", b"a/../b", b"a//b", b"./a", b"a/", b"a\0b", b"f/below"])
def test_a_listing_of_what_no_folder_can_hold_is_refused(path: bytes) -> None:
    with pytest.raises(UsageError):
        Listing({b"f": A, path: B}).check()
    with pytest.raises(UsageError):
        Listing({b"f": A}, unknown=frozenset({path})).check()


# Laws. Few names and contents, so that everything meets everything.

PATHS = [b"a", b"b", b"a/x", b"a/y", b"b/x", b"a/x/1", b"a/x/2", b"b/x/1", b"a-b"]
ENTRIES = st.one_of(
    st.just(DIR),
    st.builds(State, st.just(Kind.FILE), st.sampled_from([b"1", b"2", b"3"]), st.booleans()),
    st.builds(State, st.just(Kind.LINK), st.sampled_from([b"1", b"2"])),
)


def _grown(wanted: Mapping[bytes, State]) -> Tree:
    """A possible tree out of any wishes: what has no folder above it is left out."""
    tree: Tree = {}
    for path in sorted(wanted):
        above = parent_of(path)
        if not above or (above in tree and tree[above].is_dir):
            tree[path] = wanted[path]
    return tree


TREES = st.dictionaries(st.sampled_from(PATHS), ENTRIES).map(_grown)
MODES = st.sampled_from(list(Mode))


@st.composite
def related(draw: st.DrawFn) -> tuple[Tree, Tree, Tree]:
    """A base and two trees that mostly still are it."""
    base = draw(TREES)
    sides = []
    for _ in range(2):
        changed = {**base, **draw(st.dictionaries(st.sampled_from(PATHS), ENTRIES, max_size=3))}
        for path in draw(st.sets(st.sampled_from(PATHS), max_size=2)):
            changed.pop(path, None)
        sides.append(_grown(changed))
    return base, sides[0], sides[1]


@given(local=TREES, mode=MODES, blind=st.sets(st.sampled_from(PATHS), max_size=2))
def test_where_only_this_machine_has_something_the_short_way_comes_to_the_same(
    local: Tree, mode: Mode, blind: set[bytes]
) -> None:
    entries = {path: state for path, state in local.items() if blind.isdisjoint(ancestors(path))}
    listing = Listing(entries, ignored=frozenset(blind))
    assert plan({}, listing, Listing({}), mode) == _Planner({}, listing, Listing({}), mode).plan()


THREE = st.one_of(related(), st.tuples(TREES, TREES, TREES))


def _after(base: Tree, local: Tree, guest: Tree, result: Plan) -> tuple[Tree, Tree, Tree]:
    """All three once the plan was carried out."""
    new_local, new_guest = applied(local, result.changes, Side.LOCAL), applied(guest, result.changes, Side.GUEST)
    touched = {change.path for change in result.changes}
    new_base = dict(base)
    for path in {*result.agreed, *(path for path in touched if new_local.get(path) == new_guest.get(path))}:
        entry = new_local.get(path)
        if entry is None:
            new_base.pop(path, None)
        else:
            new_base[path] = entry
    return new_base, new_local, new_guest


def _authored(side: Tree, base: Tree) -> set[tuple[bytes, Kind, bytes]]:
    """Contents a side wrote since both agreed."""
    return {
        (path, entry.kind, entry.content)
        for path, entry in side.items()
        if not entry.is_dir and not (path in base and base[path].has_content_of(entry))
    }


@settings(max_examples=200, deadline=None)
@given(THREE, st.sampled_from([TWO, PUSH]))
def test_no_bytes_that_a_side_wrote_are_lost(trees: tuple[Tree, Tree, Tree], mode: Mode) -> None:
    base, local, guest = trees
    _, new_local, new_guest = _after(*trees, planned(*trees, mode))
    kept = _authored(new_local, {}) | _authored(new_guest, {})
    assert _authored(local, base) | _authored(guest, base) <= kept


@settings(max_examples=200, deadline=None)
@given(THREE, MODES)
def test_every_step_can_be_made_when_its_turn_comes_and_a_second_plan_has_none(
    trees: tuple[Tree, Tree, Tree], mode: Mode
) -> None:
    after = _after(*trees, planned(*trees, mode))
    for tree in after[1:]:
        Listing(tree).check()
    again = planned(*after, mode)
    assert not again.changes and not again.agreed


@settings(max_examples=150, deadline=None)
@given(THREE)
def test_two_way_makes_both_sides_equal_but_for_conflicts(trees: tuple[Tree, Tree, Tree]) -> None:
    result = planned(*trees)
    _, local, guest = _after(*trees, result)
    in_conflict = {one.path for one in result.conflicts}
    differing = {path for path in local.keys() | guest.keys() if local.get(path) != guest.get(path)}
    assert all(in_conflict & set(ancestors(path)) for path in differing)


@settings(max_examples=150, deadline=None)
@given(THREE)
def test_two_way_knows_no_sides(trees: tuple[Tree, Tree, Tree]) -> None:
    base, local, guest = trees
    _, new_local, new_guest = _after(*trees, planned(*trees))
    _, other_guest, other_local = _after(base, guest, local, planned(base, guest, local))
    bits_apart = {
        path for path in local.keys() & guest.keys() if local[path].is_executable != guest[path].is_executable
    }
    for ours, theirs in ((new_local, other_local), (new_guest, other_guest)):
        assert ours.keys() == theirs.keys()
        assert all(ours[path] == theirs[path] for path in ours.keys() - bits_apart)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(THREE, st.sampled_from([PUSH, MIRROR]))
def test_only_two_way_changes_this_machine(trees: tuple[Tree, Tree, Tree], mode: Mode) -> None:
    assert all(change.side is Side.GUEST for change in planned(*trees, mode).changes)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(THREE)
def test_a_mirror_is_equal_afterwards(trees: tuple[Tree, Tree, Tree]) -> None:
    _, local, guest = _after(*trees, planned(*trees, MIRROR))
    assert local == trees[1] == guest


@settings(max_examples=100, deadline=None)
@given(TREES, TREES, st.sampled_from([TWO, PUSH]))
def test_first_contact_deletes_nothing(local: Tree, guest: Tree, mode: Mode) -> None:
    result = planned({}, local, guest, mode)
    assert not any(change.op in (Op.DELETE, Op.RMDIR) for change in result.changes)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(THREE, MODES, st.sets(st.sampled_from(PATHS), max_size=2), st.sets(st.sampled_from(PATHS), max_size=2))
def test_what_is_left_alone_is_untouched_with_its_folders(
    trees: tuple[Tree, Tree, Tree], mode: Mode, here: set[bytes], there: set[bytes]
) -> None:
    base, *sides = trees
    listings, untouched = [], []
    for tree, alone in zip(sides, (here, there), strict=True):
        hidden = {path for path in tree if alone & set(ancestors(path))}
        tops = frozenset(path for path in hidden & alone if not hidden & set(ancestors(parent_of(path))))
        listings.append(Listing({path: tree[path] for path in tree.keys() - hidden}, unknown=tops))
        untouched.append(hidden)
    result = plan(base, listings[0], listings[1], mode)
    for side, tree, hidden in zip((Side.LOCAL, Side.GUEST), sides, untouched, strict=True):
        after = applied(tree, result.changes, side)
        assert all(after[path] == tree[path] for path in hidden)
