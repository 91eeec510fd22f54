"""Dashboard tests do not see the developer's own terminal settings."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No `NO_COLOR` and nothing of textual's in the environment, but the snapshot plugin's own folder."""
    # No test opens a page in front of whoever runs it.
    monkeypatch.setenv("BROWSER", "true")
    for name in list(os.environ):
        if name == "NO_COLOR" or (name.startswith("TEXTUAL") and name != "TEXTUAL_SNAPSHOT_TEMPDIR"):
            monkeypatch.delenv(name)
