"""The dashboard on a terminal, over a cloud in memory: `python -m tests.tui.terminal_app HOME [OPTION…]`."""

from __future__ import annotations

import fcntl
import sys
import termios
from pathlib import Path

from sbxtui.cli.output import settle_streams
from sbxtui.settings import Settings, Ui, WatchFor
from sbxtui.tui.fleet import Fleet
from sbxtui.tui.quieting import quiet_terminal
from tests.support.fake_services import FakeCloud, OnOutput, home_at, job, sandbox, services_for

HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b]0;pwned\x07\x1b[2J\x9b2J\u202e"


async def _run(line: str, on_output: OnOutput) -> int:
    if line == "crash":
        raise KeyError("no worker foresees this")
    await on_output("out", f"ran {line} {HOSTILE} end-of-output\n".encode())
    return 0


def _defect(fleet: Fleet) -> None:
    password = "hunter2"
    raise RuntimeError(f"a defect, met with a password of {len(password)} letters")


def _hostile_cloud(root: Path) -> FakeCloud:
    """Everything that anybody else may have written says more than text."""
    folder = root / "box" / "work" / f"src{HOSTILE}"
    folder.mkdir(parents=True)
    # Names of files cannot have a slash, and nothing in them is decoded by anybody but us.
    (folder / f"named{HOSTILE}").write_text(f"inside {HOSTILE} end-of-file\n")
    name = f"api{HOSTILE}"
    bad = sandbox(
        name,
        labels={f"label{HOSTILE}": f"value{HOSTILE}"},
        facts={
            "guest_version": "v1",
            "network": f"net{HOSTILE}",
            "isolation": f"isolation{HOSTILE}",
            f"fact{HOSTILE}": HOSTILE,
        },
        image_arn=f"arn:aws:lambda:x:y:microvm-image:image{HOSTILE}",
        endpoint=f"host{HOSTILE}",
        state_reason=f"reason{HOSTILE}",
    )
    running = {name: [job(name, f"command{HOSTILE}", actor=f"actor{HOSTILE}", label=f"named{HOSTILE}")]}
    return FakeCloud(
        sandboxes=[bad, sandbox("web")],
        run=_run,
        running=dict(running),
        files_root=root / "box",
        isolation=f"words{HOSTILE}",
    )


def main(home: str, *options: str) -> int:
    """Run on standard input's terminal, which becomes the controlling one, so that its end is a hang-up."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if "defect" in options:
        Fleet.sort_next = _defect  # type: ignore[method-assign,assignment]  # the `s` key then meets a defect
    root = Path(home)
    cloud = _hostile_cloud(root)
    glyphs = "ascii" if "ascii" in options else ""
    notify = next((one.removeprefix("notify=") for one in options if one.startswith("notify=")), WatchFor().notify)
    with quiet_terminal() as found:
        # As the command line does it: what takes longest is imported with the terminal quiet.
        from sbxtui.tui.app import run_dashboard

        settings = Settings(home=home_at(root), ui=Ui(glyphs=glyphs), watch=WatchFor(notify=notify))
        code = run_dashboard(settings, services_for(root, cloud), terminal=found)
    settle_streams()
    return code


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
