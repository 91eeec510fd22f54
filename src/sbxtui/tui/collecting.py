"""Looking for garbage while nobody types.

Python looks through everything that lives at moments of its own: with thousands of rows that takes a tenth of a second,
every other second, and a key pressed meanwhile waits for it.
"""

from __future__ import annotations

import gc
from time import monotonic

from sbxtui.tui.feeding import KEYS

# Looking through what was made of late, and through what was a little before, takes some milliseconds each.
_YOUNG_OBJECTS = 2_000
_MIDDLE_TIMES = 5
_NEVER = 1_000_000
# As much must have lived for a while, before looking through everything is worth it; after the other, it has to be.
_WORTH_LOOKS = 50
_DUE_LOOKS = 1_000
_QUIET_S = 2.0
_AT_MOST_EVERY_S = 10.0


class Collector:
    """Decides when Python looks through everything, from the first frame on."""

    def __init__(self) -> None:
        self._is_on = False
        self._is_settled = False
        self._looks = 0
        self._last_s = 0.0

    def begin(self) -> None:
        """The first frame is drawn; what is there stays, and was looked through for nothing."""
        # Where somebody else decides when it is collected, as in a test, they go on doing so.
        if not gc.isenabled():
            self._is_on = True
            gc.freeze()
            gc.set_threshold(_YOUNG_OBJECTS, _MIDDLE_TIMES, _NEVER)
            gc.enable()

    def tick(self) -> None:
        """Collect, if it is worth it and nobody would feel it."""
        looks = gc.get_stats()[1]["collections"] - self._looks
        is_quiet = KEYS.quiet_for_s > _QUIET_S and monotonic() - self._last_s > _AT_MOST_EVERY_S
        if self._is_on and (looks > _DUE_LOOKS or (looks > _WORTH_LOOKS and is_quiet)):
            gc.collect()
            if not self._is_settled:
                # The tabs and the libraries they use are there now, to stay.
                self._is_settled = True
                gc.freeze()
            self._looks, self._last_s = gc.get_stats()[1]["collections"], monotonic()
