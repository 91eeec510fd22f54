"""Records of the local cloud as JSON: what they hold, instants as texts."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def record_json(record: DataclassInstance) -> str:
    """One JSON document."""
    return json.dumps(dataclasses.asdict(record), default=datetime.isoformat)
