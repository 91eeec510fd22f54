"""What a comparison could not settle: it is looked at again, and told if it does not come to rest."""

from __future__ import annotations

import os
from pathlib import Path

from tests.services.sync.pairs import two_folders

SIZE_BYTES = 5 * 1024 * 1024


async def test_what_changed_while_it_was_sent_is_come_back_to_and_told_if_it_does_not_rest(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        path = two.here / "f"
        path.write_bytes(os.urandom(SIZE_BYTES))
        is_due = True

        def write(point: str) -> None:
            nonlocal is_due
            if point == "sending" and is_due:
                is_due = False
                path.write_bytes(os.urandom(SIZE_BYTES))

        two.guest.fault = write
        await two.cycle.compare()
        assert two.cycle.look_again == {b"f"} and not is_due
        is_due = True
        await two.cycle.come_back((0.0,))
        assert two.cycle.status.problems == {b"f": "changed_meanwhile"}
        await two.cycle.come_back((0.0, 0.0))
        assert not two.cycle.look_again and not two.cycle.status.problems
        assert (two.there / "f").read_bytes() == path.read_bytes()
