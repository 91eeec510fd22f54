"""`python -m screenshots`: the real dashboard over real sandboxes of a throw-away home, as SVG beside this file."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from textual.pilot import Pilot

from bench.support import BenchHome, bench_home
from sbxtui.settings import Settings, load
from sbxtui.tui.app import Dashboard
from sbxtui.tui.opening import FirstLook
from sbxtui.wiring import Services

_FOLDER = Path(__file__).resolve().parent
_SIZE = (120, 32)
_DEADLINE_S = 30.0

# What is pressed after the picture before it, until which words are on the screen.
SCENES: tuple[tuple[str, Sequence[str], str], ...] = (
    ("dashboard", (), "suspended"),
    ("help", ("question_mark",), "esc closes"),
    ("create", ("escape", "n"), "memory"),
    ("run", ("escape", "e", *"uname", "space", *"-sn", "enter"), "Linux"),
)


def main() -> int:
    """Make every picture."""
    with bench_home() as home:
        _populate(home)
        asyncio.run(_take(load(home.env, cwd=home.folder)))
    return 0


def _populate(home: BenchHome) -> None:
    for name in ("agent-1", "nightly", "review"):
        home.sbx("create", name)
    home.sbx("exec", "agent-1", "--", "true")
    home.sbx("stop", "review")


async def _take(settings: Settings) -> None:
    look = FirstLook(lambda name: Services(settings, actor="tui:you"))
    look.start()
    app = Dashboard(settings, look)
    try:
        async with app.run_test(size=_SIZE) as pilot:
            for name, keys, words in SCENES:
                await pilot.press(*keys)
                await _wait_for(pilot, app, words)
                (_FOLDER / f"{name}.svg").write_text(app.export_screenshot(title="sbx"), encoding="utf-8")
                sys.stderr.write(f"screenshots/{name}.svg\n")
    finally:
        if look.services is not None:
            look.services.close()


async def _wait_for(pilot: Pilot[None], app: Dashboard, words: str) -> None:
    try:
        async with asyncio.timeout(_DEADLINE_S):
            while words.lower() not in _text(app).lower():
                await pilot.pause(0.1)
    except TimeoutError as exc:
        raise TimeoutError(f"`{words}` did not appear on\n{_text(app)}") from exc


def _text(app: Dashboard) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


if __name__ == "__main__":
    raise SystemExit(main())
