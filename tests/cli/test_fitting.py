"""Tables on a terminal never wrap; what there is no room for is left out, and elsewhere nothing is."""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxtui.cli import forward, show, sync
from sbxtui.cli.fitting import Cut, cells, fit, shortened, wrapped
from sbxtui.core.model import Event
from tests.support.fake_services import sandbox
from tests.support.on_terminal import sbx_on_terminal
from tests.support.sbx import Sbx

ROW = (
    *("app", "suspended", "12m", "sbx-base-2048", "none", "namespaces", "~$0.0003", "~$0.01"),
    "microvm-0123456789abcdef",
)


def test_the_id_is_cut_to_a_beginning_that_still_names_the_sandbox() -> None:
    fitted = fit(show.SANDBOX_COLUMNS, [ROW], show.SANDBOX_CUTS, 90)
    assert (fitted.columns, fitted.left_out) == (show.SANDBOX_COLUMNS, ())
    assert ROW[-1].startswith(fitted.rows[0][-1])


def test_what_a_sandbox_may_do_is_shown_longer_than_what_it_was_made_from() -> None:
    fitted = fit(show.SANDBOX_COLUMNS, [ROW], show.SANDBOX_CUTS, 44)
    assert fitted.left_out == ("PER HOUR", "SO FAR", "ID", "AGE", "IMAGE")
    assert fitted.rows == (("app", "suspended", "none", "namespaces"),)


def test_a_column_whose_head_was_cut_can_still_be_left_out() -> None:
    fitted = fit(("A", "LONG"), [("x" * 5, "y" * 9)], [Cut("LONG", 3), Cut("LONG", 0)], 6)
    assert (fitted.rows, fitted.left_out) == ((("x" * 5,),), ("LONG",))


def test_a_table_that_fits_stays_as_it_is() -> None:
    assert fit(("A", "B"), [("x", "y")], [Cut("A", 0)], 4).rows == (("x", "y"),)


def test_a_long_reason_is_whole_only_in_a_wide_list() -> None:
    ended = sandbox("app", state_reason="it took more memory than it may have, " * 3)
    assert "…" in show.sandbox_row(ended)[1]
    assert show.sandbox_row(ended, is_wide=True)[1].count("it took more memory") == 3


@pytest.mark.parametrize(("text", "width", "short"), [("漢字漢字", 5, "漢字…"), ("abcdef", 3, "ab…"), ("ab", 1, "…")])
def test_letters_that_take_two_cells_count_as_two(text: str, width: int, short: str) -> None:
    assert shortened(text, width) == short


@given(text=st.text(max_size=30), width=st.integers(min_value=1, max_value=20))
def test_a_shortened_line_is_never_wider_than_it_may_be(text: str, width: int) -> None:
    assert cells(shortened(text, width)) <= width


@pytest.mark.parametrize(
    ("columns", "cuts", "row"),
    [
        (
            *(forward.COLUMNS, forward.CUTS),
            ("a" * 63, "18000", "8000", "needs-credentials", "12", "1.2 MiB / 3.4 MiB", "refused: another host " * 4),
        ),
        (forward.PORT_COLUMNS, forward.PORT_CUTS, ("8000", "0.0.0.0, ::, 127.0.0.53", "python3.11-server", "7", "2s")),
        (sync.COLUMNS, sync.CUTS, ("a" * 63, "halted: much was deleted", "two-way", "/home/somebody/somewhere/else")),
        (sync.CONFLICT_COLUMNS, sync.CONFLICT_CUTS, ("src/some/where/a.txt", "file, 5 B", "deleted, was a folder")),
    ],
)
def test_a_list_of_links_fits_into_the_narrowest_terminal(
    columns: tuple[str, ...], cuts: tuple[Cut, ...], row: tuple[str, ...]
) -> None:
    fitted = fit(columns, [row], cuts, 40)
    assert len("  ".join(fitted.rows[0])) <= 40
    assert fit(columns, [row], cuts, 400).rows == (row,)


def test_every_table_says_how_it_fits() -> None:
    for file in Path(show.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "table":
                assert {"cuts", "is_wide"} <= {word.arg for word in node.keywords}, f"{file.name}:{node.lineno}"


def test_a_finding_goes_on_under_its_first_line_and_no_path_in_it_is_cut() -> None:
    lines = wrapped("one two /a/long/path/of/things three", "ok    disk  ", 24)
    assert lines == ["ok    disk  one two", " " * 12 + "/a/long/path/of/things", " " * 12 + "three"]
    assert wrapped("one two", "ok  ", 0) == ["ok  one two"]


def test_an_event_is_cut_to_the_terminal() -> None:
    event = Event(1, datetime(2026, 1, 1, tzinfo=UTC), "local", "job.exit", "a", "cli:you", {"why": "x" * 100})
    assert cells(show.event_line(event, 60)) == 60
    assert show.event_line(event).endswith("x" * 100)


@pytest.mark.long
@pytest.mark.parametrize("columns", [30, 60, 80, 200])
def test_no_line_of_a_list_is_wider_than_the_terminal(sbx: Sbx, app: str, columns: int) -> None:
    for words in (
        ("ls",),
        ("ls", "--all-contexts"),
        ("ps", app),
        ("image", "ls"),
        ("context", "ls"),
        ("jobs", "--all"),
        ("events",),
    ):
        with sbx_on_terminal(sbx, *words, size=(columns, 24)) as terminal:
            assert terminal.wait() == 0
        shown = [one for one in terminal.seen.decode().splitlines() if not one.startswith("note: ")]
        assert shown
        # A sentence in place of a list goes on in the next line.
        assert [one for one in shown if cells(one) > columns and not one.startswith("no jobs: ")] == []


def test_all_of_a_list_is_to_be_had_wide_or_where_no_terminal_is(sbx: Sbx, app: str) -> None:
    sandbox_id = sbx.ok("ps", app, "--json").json["id"]
    assert sandbox_id in sbx.ok("ls").out
    with sbx_on_terminal(sbx, "ls", "--wide", size=(40, 24)) as terminal:
        terminal.see(sandbox_id.encode())
    with sbx_on_terminal(sbx, "ls", size=(50, 24)) as terminal:
        terminal.see(b"`--wide` shows all")


def test_what_has_no_name_keeps_its_id() -> None:
    row = ("(untracked)", *ROW[1:])
    fitted = fit(show.SANDBOX_COLUMNS, [row], show.UNTRACKED_CUTS, 60)
    assert "ID" in fitted.columns


def test_a_record_is_for_people_unless_json_was_asked_for(sbx: Sbx, app: str) -> None:
    shown = sbx.ok("inspect", app)
    assert f'\n  "name": "{app}",' in f"\n{shown.out}"
    compact = sbx.ok("inspect", app, "--json")
    assert len(compact.out.splitlines()) == 1
    assert json.loads(shown.out) == compact.json


def test_events_stand_in_columns_whatever_their_subject_is_called() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    events = [
        Event(1, at, "local", "job.exit", subject, "cli:you", {"exit_code": 1, "changed": ["network", "labels"]})
        for subject in ("a", "\x1b[31mred\nline")
    ]
    lines = [show.event_line(event) for event in events]
    assert len({line.index("cli:you") for line in lines}) == 1
    assert lines[0].endswith("exit_code=1 changed=network,labels")
    assert "red line" in lines[1]
