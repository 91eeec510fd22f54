"""Two real folders and what keeps them equal, for tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sbxtui.services.sync.cycle import Cycle
from sbxtui.services.sync.folder import Folder
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.model import Mode, OnConflict
from sbxtui.services.sync.pair import Pair
from sbxtui.store.ancestors import Ancestors
from tests.support.direct_tree import DirectTree


@dataclass(slots=True)
class TwoFolders:
    """`here` is this machine's folder, `there` the sandbox's; `cycle` compares them and carries changes over."""

    here: Path
    there: Path
    guest: DirectTree
    pair: Pair
    cycle: Cycle
    state_dir: Path
    taking_in: Intake | None = None

    def both(self, name: str) -> tuple[str | None, str | None]:
        """The content of a file on both sides; None where it is not."""
        return _read(self.here / name), _read(self.there / name)

    @contextmanager
    def intake(self) -> Iterator[Intake]:
        """What takes changes in, here."""
        intake = Intake(self.pair.folder, self.state_dir / "stage")
        try:
            yield intake
        finally:
            intake.close()


def _read(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


@contextmanager
def two_folders(
    tmp_path: Path,
    *,
    mode: Mode = Mode.PUSH,
    fault: Callable[[str], None] = lambda point: None,
    on_conflict: OnConflict = OnConflict.STOP,
) -> Iterator[TwoFolders]:
    """Two folders below `tmp_path`, made if they are not there; what they agree on stays in `tmp_path/state`."""
    here, there, state_dir = tmp_path / "h" / "here", tmp_path / "t" / "there", tmp_path / "state"
    for path in (here, there):
        if not path.parent.exists():
            path.mkdir(parents=True)
    folder = Folder(os.fspath(here))
    guest = DirectTree(os.fspath(there), fault)
    ancestors = Ancestors.open(state_dir / "link.db")
    pair = Pair(folder, guest, ancestors, mode)
    intake = Intake(folder, state_dir / "stage") if mode is Mode.TWO_WAY else None
    try:
        yield TwoFolders(
            here, there, guest, pair, Cycle(pair, intake=intake, on_conflict=on_conflict), state_dir, intake
        )
    finally:
        if intake is not None:
            intake.close()
        ancestors.close()
        guest.close()
        folder.close()
