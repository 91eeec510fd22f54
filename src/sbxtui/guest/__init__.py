"""Host side of the wire: the home of httpx. Imports sbxguest.wire, sbxguest.tree, store, settings and core."""

import sys

# httpx imports its own command line, whose click, rich and pygments cost more than all the rest of it. Found to be
# missing, it is done without; the line stands here because every use of httpx passes through this package.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None is how Python marks a module as missing
