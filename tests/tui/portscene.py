"""The actions of the ports tab in a scene."""

from __future__ import annotations

from pathlib import Path

from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.screens.page import PageScreen
from sbxtui.tui.widgets.rows import RowList
from tests.support.fake_ports import open_port
from tests.support.fake_services import FakeCloud, sandbox
from tests.tui.acting import Act, Scene, Seen, is_asked, is_copied, to_tab
from tests.tui.driving import Driver


def on_ports(root: Path) -> Scene:
    """Two ports, of which one is forwarded, opened and stopped."""
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    desk = cloud.ports
    desk.found = [open_port(5173, "node"), open_port(8000, "python3")]
    url = "http://api-5173.localhost:5173"

    def is_listed(driver: Driver) -> bool:
        return len(driver.main.query_one("#portlist", RowList).rows) == 2

    def says(words: str) -> Seen:
        return lambda driver: any(words in told for told in driver.toasts())

    def did(what: str) -> Seen:
        return lambda driver: desk.done[-1:] == [what]

    return Scene(
        cloud,
        (
            Act(
                "port_forward",
                lambda driver: desk.done[-1:] == ["start 5173 at None"],
                to_tab("ports"),
                is_ready=is_listed,
            ),
            Act(
                "port_copy",
                is_copied("http://api-5173.localhost:5173"),
                is_ready=lambda driver: "2 conn" in driver.text(),
            ),
            Act("port_open", says(f"asked your browser for {url}")),
            Act("port_details", is_asked(PageScreen, "received_bytes"), is_ready=is_listed),
            Act("port_stop", did("stop 5173"), ("escape",)),
            Act("port_look", did("look")),
            Act("port_add", is_asked(AskScreen, "Forward a port of api")),
        ),
    )
