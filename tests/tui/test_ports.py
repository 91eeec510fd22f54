"""The ports tab: what listens in the sandbox, what of it is here, and that looking costs a sleeping sandbox nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from sbxtui.core.errors import AddressInUse
from sbxtui.core.model import SandboxState
from sbxtui.services.forward.desk import ForwardView
from sbxtui.services.ports import OpenPort
from sbxtui.settings import Settings, Ui
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.tui.portlines import lines_of, port_row, state_line
from sbxtui.tui.tabs.ports import PortsTab
from sbxtui.tui.widgets.rows import RowList
from tests.support.fake_ports import FakePortDesk, forward_view, now, open_port
from tests.support.fake_services import FakeCloud, home_at, sandbox
from tests.tui.driving import Driver, dashboard, tab_key


def row_texts(found: Sequence[OpenPort], *views: ForwardView, width: int = 120) -> list[str]:
    lines = lines_of(found, views)
    rows = [port_row(line, now() + timedelta(seconds=1), width, is_looked=True) for line in lines]
    return ["".join(text for text, _ in row.cells).strip() for row in rows]


def test_a_port_tells_who_listens_and_a_forward_where_how_much_and_what_went_wrong() -> None:
    failed = forward_view(8000, 8001, "link down", reason="the connection was lost", open=0)
    found = [open_port(5173, "node"), open_port(9229, "node")]
    assert row_texts(found, forward_view(5173), failed, width=140) == [
        "5173   node          1m     → http://api-5173.localhost:5173  up  2 connections, 4.0 KiB out 1.4 MiB in",
        "8000   nothing              → http://api-8000.localhost:8001  link down  0 connections, 4.0 KiB out 1.4 MiB in"
        "  the connection was lost",
        "9229   node          1m",
    ]
    assert state_line([failed], None, now())[0] == "1 forwarded, 1 in trouble · not looked inside yet"


def test_narrow_screens_keep_the_port_the_state_and_the_trouble() -> None:
    (text,) = row_texts([], forward_view(8000, 8001, "link down", reason="lost"), width=52)
    assert text.startswith("8000") and "→ :8001" in text and "link down" in text and "lost" in text


def test_hostile_names_are_harmless() -> None:
    (text,) = row_texts([open_port(80, "a\x1b]52;c;x\x07\u202eb\n")])
    assert text.isprintable()


@asynccontextmanager
async def ports_tab(
    root: Path, desk: FakePortDesk, state: SandboxState = SandboxState.RUNNING, *, settings: Settings | None = None
) -> AsyncIterator[Driver]:
    async with dashboard(root, FakeCloud(sandboxes=[sandbox("api", state)], ports=desk), settings=settings) as driver:
        await driver.press(tab_key("ports"), "tab")
        yield driver


def listed(driver: Driver) -> int:
    return len(driver.main.query_one("#portlist", RowList).rows)


def started(desk: FakePortDesk) -> list[str]:
    return [one for one in desk.done if one != "look"]


async def test_a_suspended_sandbox_is_asked_only_when_the_person_says_so(tmp_path: Path) -> None:
    desk = FakePortDesk([open_port(8000, "python3")], (forward_view(8000, state="suspended"),))
    async with ports_tab(tmp_path, desk, SandboxState.SUSPENDED) as driver:
        await driver.until(lambda: listed(driver) == 1)
        assert desk.done == [] and "not looked inside yet" in driver.text()
        await driver.press("r")
        await driver.until(lambda: "python3" in driver.text())


async def test_a_page_is_opened_once_it_is_here_by_the_browser_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {asked}; test -t 0 || echo no terminal >> {asked}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    desk = FakePortDesk([open_port(8000, "python3")])
    async with ports_tab(tmp_path, desk) as driver:
        driver = Driver(driver.app, driver.pilot, 60.0)
        await driver.until(lambda: listed(driver) == 1)
        await driver.press("o")
        await driver.until(lambda: asked.exists() and asked.read_text().endswith("terminal\n"))
        assert asked.read_text() == "http://api-8000.localhost:8000\nno terminal\n"
        assert started(desk) == ["start 8000 at None"]


async def test_a_port_that_is_taken_is_told_and_another_can_be_named(tmp_path: Path) -> None:
    desk = FakePortDesk()
    async with ports_tab(tmp_path, desk) as driver:
        await driver.until(lambda: "nothing listens inside" in driver.text())
        desk.error = AddressInUse("port 80 of this machine is taken by nginx")
        await driver.press("n", *"80:8000", "enter")
        await driver.until(lambda: any("taken by nginx" in told for told in driver.toasts()))
        desk.error = None
        await driver.press("n", *"81:9x")
        assert "is no port" in driver.text()
        await driver.press("backspace", "enter")
        await driver.until(lambda: started(desk) == ["start 9 at 81"])


async def test_what_begins_to_listen_is_told_wherever_the_person_is(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")])) as driver:
        store = Store.open(home_at(tmp_path))
        data = {"port": 5173, "pid": 7, "process": "node"}
        await driver.until(lambda: driver.main.is_open)
        tab = driver.main.query_one(PortsTab)
        await driver.until(lambda: any(worker.group == "port-news" for worker in tab.workers))

        def is_told() -> bool:
            # The watch may begin after the first of them.
            Events(store).record(context="local", kind="port.listening", subject="api", actor="runner", data=data)
            return any("new inside api: port 5173 (node)" in told for told in driver.toasts())

        await driver.until(is_told)
        store.close()


async def test_nothing_is_forwarded_where_nothing_may_be_changed(tmp_path: Path) -> None:
    settings = Settings(home=home_at(tmp_path), ui=Ui(read_only=True))
    desk = FakePortDesk([open_port(8000, "python3")])
    async with ports_tab(tmp_path, desk, settings=settings) as driver:
        await driver.until(lambda: listed(driver) == 1)
        keys = {action.id for action in driver.main.actions_here()}
        assert "port_look" in keys and not {"port_forward", "port_add", "port_stop"} & keys
        await driver.press("o")
        await driver.until(lambda: any("not forwarded" in told for told in driver.toasts()))
        assert started(desk) == []
