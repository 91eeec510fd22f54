"""`python -m screenshots`: the real dashboard over real sandboxes of a throw-away home, as SVG and PNG files.

With `--check` nothing is written: it tells which of the pictures there are say something else than the dashboard does.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from textual.pilot import Pilot
from textual.screen import ModalScreen

from bench.support import BenchHome, bench_home
from sbxtui.settings import Settings, load
from sbxtui.tui.app import Dashboard
from sbxtui.tui.opening import FirstLook
from sbxtui.tui.tabs.registry import TABS
from sbxtui.wiring import Services
from screenshots.words import Box, words_of

_FOLDER = Path(__file__).resolve().parent
_SIZE = (120, 32)
_DEADLINE_S = 60.0
# The last words of a scene may stand before all of it does.
_SETTLING_S = 20.0
_STALE = 1
# Takes the name of a picture, the picture, and the part of it that counts; returns what is wrong with it.
Use = Callable[[str, str, Box | None], list[str]]


def _tab(tab_id: str) -> str:
    return next(str(at) for at, spec in enumerate(TABS, start=1) if spec.id == tab_id)


# What is pressed after the picture before it, until which words are on the screen. Without a name there is no picture.
SCENES: tuple[tuple[str, Sequence[str], str], ...] = (
    ("", (), " live "),
    ("dashboard", (), "only when removed"),
    ("help", ("question_mark",), "esc closes"),
    ("create", ("escape", "n"), "memory"),
    ("run", ("escape", "e", *"uname", "space", *"-s", "enter"), "exit 0"),
    ("jobs", ("escape", _tab("jobs"), "tab"), "uname"),
    ("files", ("escape", _tab("files"), "tab", "enter", "j", "enter"), "def answer"),
    ("", ("escape", "escape", "j", _tab("sync"), "tab"), "watching"),
    ("sync", ("r",), "edited"),
    ("activity", ("escape", "g", _tab("activity"), "tab"), "sbx create"),
)


def main() -> int:
    """Make every picture, or check those that are there."""
    use = _differences if sys.argv[1:] == ["--check"] else _write
    with bench_home() as home:
        _populate(home)
        stale = asyncio.run(_take(load(home.env, cwd=home.folder), use))
        home.sbx("sync", "stop", "nightly")
    for name, differences in stale.items():
        sys.stderr.write("\n".join([f"stale: {name}; `make screenshots` makes it anew", *differences, ""]))
    return _STALE if stale else 0


def _populate(home: BenchHome) -> None:
    for name in ("agent-1", "nightly", "review"):
        home.sbx("create", name)
    source = "def answer(question: str) -> int:\\n    return 6 * 7  # whatever was asked\\n"
    home.sbx("exec", "agent-1", "--", "sh", "-c", f"mkdir src && printf '{source}' > src/answer.py && date > built.txt")
    home.sbx("stop", "review")
    project = home.folder / "project"
    project.mkdir()
    (project / "answer.txt").write_text("41\n")
    home.sbx("sync", "nightly", str(project), "--detach")
    home.sbx("sync", "flush", "nightly")
    home.sbx("exec", "nightly", "--", "sh", "-c", "echo 42 > answer.txt; echo done > report.txt")


async def _take(settings: Settings, use: Use) -> dict[str, list[str]]:
    """Show every scene and use its picture; what was wrong with those that never were as `use` wants them."""
    stale: dict[str, list[str]] = {}
    look = FirstLook(lambda name: Services(settings, actor="tui:you"))
    look.start()
    app = Dashboard(settings, look)
    try:
        async with app.run_test(size=_SIZE) as pilot:
            for name, keys, words in SCENES:
                await pilot.press(*keys)
                await _wait_for(pilot, app, words)
                if name and (differences := await _used(pilot, app, name, use)):
                    stale[name] = differences
    finally:
        if look.services is not None:
            look.services.close()
    return stale


async def _used(pilot: Pilot[None], app: Dashboard, name: str, use: Use) -> list[str]:
    differences: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SETTLING_S):
            while differences := use(name, app.export_screenshot(title="sbx"), _dialog(app)):
                await pilot.pause(0.5)
    return differences


def _dialog(app: Dashboard) -> Box | None:
    """Where a dialog is: what it covers may show any part of a word at its edges."""
    if not isinstance(app.screen, ModalScreen):
        return None
    region = app.screen.children[0].region
    return Box(region.x, region.y, region.right, region.bottom)


def _differences(name: str, svg: str, box: Box | None) -> list[str]:
    """What the picture that is there says, and the one that would be made does not, or the other way."""
    file = _FOLDER / f"{name}.svg"
    there = words_of(file.read_text(encoding="utf-8"), box) if file.exists() else []
    return list(difflib.unified_diff(there, words_of(svg, box), "there", "now", lineterm="", n=0))


def _write(name: str, svg: str, box: Box | None) -> list[str]:
    """As SVG, and as PNG where librsvg's converter is installed."""
    file = _FOLDER / f"{name}.svg"
    file.write_text(svg, encoding="utf-8")
    sys.stderr.write(f"screenshots/{file.name}\n")
    if shutil.which("rsvg-convert") is None:
        sys.stderr.write("  no PNG: rsvg-convert (Debian: librsvg2-bin) is not installed\n")
        return []
    png = file.with_suffix(".png")
    # The converter drops the blanks at the start of a text unless it is told to keep them.
    kept = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    command = ["rsvg-convert", "--width", "1400", "--output", str(png)]
    subprocess.run(command, input=kept.encode(), check=True, timeout=60)
    return []


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
