"""`python -m tests.services.sync.living ROOT MODE`: a link between two folders that goes on until it is killed.

It says its state, whether hints were lost, and why there are none, whenever any of these changes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from sbxtui.services.sync.link import LiveLink
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.status import Status
from tests.services.sync.pairs import two_folders


async def main() -> None:
    """Go on."""
    said = ""

    def say(status: Status) -> None:
        nonlocal said
        words = f"{status.state.value} {'lost' if status.overflows else ''} {status.trouble}"
        if words != said:
            said = words
            os.write(1, f"{words}\n".encode())

    with two_folders(Path(sys.argv[1]), mode=Mode(sys.argv[2])) as two:
        await LiveLink(two.pair, say, intake=two.taking_in).run()


if __name__ == "__main__":
    asyncio.run(main())
