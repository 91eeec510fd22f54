"""Whether all that is here is in the sandbox, too."""

from __future__ import annotations

from sbxtui.core.errors import Incomplete
from sbxtui.core.text import harmless_line
from sbxtui.services.sync.cycle import Cycle
from sbxtui.services.sync.made import CHANGED_MEANWHILE
from sbxtui.services.sync.model import Path
from sbxtui.services.sync.status import shown

_NAMED = 5
# Nobody expects a socket in the sandbox.
_NO_CONTENT = "special_file"


def check_arrived(name: str, cycle: Cycle) -> None:
    """Refuse to call a turn complete after which a file of this machine is not in the sandbox as it is here.

    Raises:
        Incomplete: Some are not; `details["failed"]` has their paths and why.
    """
    missing = _missing(cycle)
    if not missing:
        return
    first = ", ".join(f"{harmless_line(shown(path))} ({code})" for path, code in list(missing.items())[:_NAMED])
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    raise Incomplete(
        f"not in the sandbox as here: {first}{more}",
        hint=f"`sbx sync status {name}` and `sbx sync conflicts {name}` tell more",
        details={"failed": [{"path": shown(path), "code": code} for path, code in missing.items()]},
    )


def _missing(cycle: Cycle) -> dict[Path, str]:
    pair = cycle.pair
    found = {path: code for path, code in pair.local.problems().items() if code != _NO_CONTENT}
    found.update(dict.fromkeys(cycle.look_again - pair.local.unsettled(), CHANGED_MEANWHILE))
    found.update(cycle.status.failed)
    found.update(dict.fromkeys(pair.conflicts, "conflict"))
    return dict(sorted(found.items()))
