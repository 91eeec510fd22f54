"""The present, in one place, so that everything on one screen has the same age and a test can stop it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present instant."""
    return datetime.now(UTC)
