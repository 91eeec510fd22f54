"""Copying out, messages, contexts, renaming, adopting, pinning, folding."""

from __future__ import annotations

import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sbxtui.core.errors import QuotaExceeded, UsageError
from sbxtui.core.model import ContextName
from sbxtui.tui.copying import MAX_SEQUENCE_BYTES, copied_words, fits_sequence, keep_copy
from sbxtui.tui.notes import MAX_NOTES, Note, Notes
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.screens.choose import ChooseScreen
from sbxtui.tui.screens.create import Ground, Wish, command_line, network_choices
from sbxtui.tui.tabs.registry import TABS
from sbxtui.tui.widgets.folds import Folds
from sbxtui.tui.widgets.panes import DetailPane
from sbxtui.tui.widgets.transcript import Transcript
from tests.support.fake_services import LOCAL, FakeCloud, OnOutput, home_at, sandbox
from tests.tui.driving import dashboard, tab_key


async def two_lines(line: str, on_output: OnOutput) -> int:
    await on_output("out", f"{line} one\n{line} two\n".encode())
    return 0


async def test_y_offers_what_can_be_copied_and_says_where_it_went(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")])) as driver:
        await driver.press("y")
        assert isinstance(driver.app.screen, ChooseScreen)
        await driver.press("j", "enter")
        await driver.until(lambda: driver.toasts())
        assert driver.app.clipboard == "mvm-api"
        assert "OSC 52" in driver.toasts()[0] and "copied.txt" in driver.toasts()[0]


async def test_the_last_output_is_copied_as_a_whole(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")], run=two_lines)) as driver:
        await driver.press("e", "x", "enter")
        await driver.until(lambda: "exit 0" in driver.text())
        await driver.press("escape", "y", "k", "k", "k", "k", "k")
        choices = driver.app.screen
        assert isinstance(choices, ChooseScreen)
        await driver.press("j", "j", "j", "j", "j", "j", "enter")
        await driver.until(lambda: driver.app.clipboard == "x one\nx two")


async def test_text_selected_with_the_mouse_is_copied_from_the_output(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")], run=two_lines)) as driver:
        await driver.press("e", "x", "enter")
        await driver.until(lambda: "exit 0" in driver.text())
        at = driver.output.region
        await driver.pilot.mouse_down(driver.output, offset=(1, 1))
        await driver.pilot.hover(driver.output, offset=(1, 2))
        await driver.pilot.mouse_up(driver.output, offset=(6, 2))
        assert at.height > 2
        await driver.press("ctrl+c")
        await driver.until(lambda: driver.app.clipboard.startswith("x one\nx tw"))


def test_a_copy_too_long_for_the_terminal_is_in_the_file_only(tmp_path: Path) -> None:
    assert fits_sequence("x" * MAX_SEQUENCE_BYTES) and not fits_sequence("ä" * MAX_SEQUENCE_BYTES)
    file = keep_copy(home_at(tmp_path), "x" * 200_000)
    assert file.stat().st_size == 200_000 and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "too long for the terminal" in copied_words("it", "x" * 200_000, file)


def test_the_same_words_again_are_one_message_with_a_count() -> None:
    notes, at = Notes(), datetime(2026, 3, 1, tzinfo=UTC)
    for number in range(MAX_NOTES + 50):
        notes.add(Note(at, f"note {number // 2}", "warning"))
    notes.add(Note(at, "broken", "error", error=UsageError("x", hint="mend it")))
    assert len(notes) <= MAX_NOTES
    assert "(2 times)" in notes.text() and "hint: mend it" in notes.text()


async def test_what_was_said_can_be_read_later(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")])) as driver:
        driver.main.tell("something happened", "warning")
        await driver.press("exclamation_mark")
        assert "something happened" in driver.text()


async def test_another_context_opens_in_place_and_its_sandboxes_are_shown(tmp_path: Path) -> None:
    other = FakeCloud(context=replace(LOCAL, name=ContextName("other")), sandboxes=[sandbox("far")])
    here = FakeCloud(sandboxes=[sandbox("near")])
    from tests.support.fake_services import services_for

    async with dashboard(tmp_path, here, factory=services_for(tmp_path, here, other)) as driver:
        await driver.press("c")
        await driver.until(lambda: isinstance(driver.app.screen, ChooseScreen))
        await driver.press("j", "enter")
        await driver.until(lambda: "far" in driver.text() and "near" not in driver.text())
        assert "other" in driver.text().splitlines()[0]


async def test_renaming_says_what_is_wrong_while_typing_and_keeps_the_row(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api"), sandbox("web")])
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("g", "R", "space")
        assert isinstance(driver.app.screen, AskScreen)
        assert "cannot name a sandbox" in driver.text()
        await driver.press("ctrl+u", *"api2")
        assert "$ sbx rename api api2" in driver.text()
        await driver.press("enter")
        await driver.until(lambda: cloud.done == ["rename api api2"])


async def test_a_machine_without_a_name_is_adopted(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("")])
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("a", *"mine", "enter")
        await driver.until(lambda: cloud.done == ["adopt mvm-stranger mine"])


async def test_a_failure_is_in_the_row_until_something_works(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    cloud.change_error = QuotaExceeded("the account may run 2", hint="end one")
    async with dashboard(tmp_path, cloud, size=(160, 30)) as driver:
        await driver.press("p")
        await driver.until(lambda: "stop failed" in driver.text())
        await driver.press("o")
        assert "What to do: end one" in driver.text()
        cloud.change_error = None
        await driver.press("escape", "p")
        await driver.until(lambda: driver.main.fleet.failures == {})


@pytest.mark.long
async def test_a_pinned_tab_stays_in_view_below_and_takes_its_turn(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")]), size=(160, 40)) as driver:
        pane = driver.main.query_one(DetailPane)
        await driver.press("P", tab_key("shell"))
        assert [tab.id for tab in pane.shown_tabs()] == ["shell", "overview"]
        await driver.until(lambda: pane.tab("shell").region.bottom <= pane.tab("overview").region.y)
        assert "pinned: Overview" in driver.text()
        await driver.press("tab", "tab", "tab")
        assert driver.main.focused is pane.tab("overview").first_inside()
        await driver.press("tab")
        assert driver.is_in_list()
        await driver.press("1", "P")
        assert [tab.id for tab in pane.shown_tabs()] == ["overview"]


async def test_tabs_go_round_by_brackets(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")])) as driver:
        pane = driver.main.query_one(DetailPane)
        await driver.press("left_square_bracket")
        assert pane.current == "activity"
        await driver.press("right_square_bracket", "right_square_bracket")
        assert pane.current == TABS[1].id


async def test_a_commands_output_is_folded_and_shown_again(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")], run=two_lines), size=(100, 40)) as driver:
        await driver.press("e", "x", "enter")
        await driver.until(lambda: driver.text().count("exit 0") == 1)
        await driver.press("y", "enter")
        await driver.until(lambda: driver.text().count("exit 0") == 2)
        driver.main.set_focus(driver.output)
        await driver.press("space")
        assert "y one" not in driver.text() and "▸ $ y" in driver.text() and "x one" in driver.text()
        await driver.press("F")
        assert "x one" not in driver.text()
        await driver.press("F")
        assert "x one" in driver.text() and "y one" in driver.text()


@pytest.mark.parametrize("folded", [(), (0,), (1,), (0, 2), (0, 1, 2)])
def test_rows_and_lines_agree_whatever_is_folded(folded: tuple[int, ...]) -> None:
    transcript = Transcript(max_lines=12)
    for command in ("a", "b", "c"):
        transcript.begin(command)
        transcript.feed("out", b"1\n2\n3\n")
        transcript.finish("exit 0", is_failure=False)
    for at in folded:
        if at < len(transcript.blocks):
            transcript.blocks[at].is_folded = True
    folds = Folds(transcript)
    seqs = [folds.seq_at(row) for row in range(folds.rows)]
    assert seqs == sorted(set(seqs))
    assert [folds.row_of(seq) for seq in seqs] == list(range(folds.rows))
    assert all(0 <= folds.row_of(seq) < folds.rows for seq in range(transcript.first, transcript.end))


def test_the_form_offers_only_networks_that_would_be_enforced() -> None:
    ground = Ground(LOCAL, "namespaces", image="", memory_mib=0, egress_connector="")
    assert network_choices(ground)[0] == ("", "none: it reaches nothing outside itself")
    assert command_line(Wish("a", 512, "none", 300)) == "sbx create a --memory 512 --network none --idle 300"
