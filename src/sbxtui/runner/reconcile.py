"""What the runner does each time it looks: bring reality to what the rows say."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from sbxtui.core.errors import SbxError
from sbxtui.core.model import Registration
from sbxtui.services.leftovers import is_one_shot, needs_recovery
from sbxtui.settings import Settings
from sbxtui.wiring import Services

log = logging.getLogger(__name__)

_ACTOR = "runner"


def needs_runner(rows: Sequence[Registration]) -> bool:
    """Whether something in these rows may have to be ended or finished by the runner."""
    return any(is_one_shot(row) for row in rows) or needs_recovery(rows, datetime.now(UTC))


async def reconcile(settings: Settings, rows: Sequence[Registration]) -> None:
    """Finish and end what dead processes left, context by context; one that cannot be reached is tried again later."""
    for context_name in sorted({row.context for row in rows}):
        if not needs_recovery([row for row in rows if row.context == context_name], datetime.now(UTC)):
            continue
        services = Services(settings, actor=_ACTOR, context_name=context_name)
        try:
            await services.one_shots.recover()
        except SbxError as exc:
            log.warning("context %s: %s", context_name, exc.message)
        except Exception:
            log.exception("context %s", context_name)
        finally:
            services.close()
