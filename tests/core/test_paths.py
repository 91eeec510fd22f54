"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.core.paths import at_home


def test_a_tilde_is_ones_home_where_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/you")
    assert [at_home("~/a"), at_home("~"), at_home("/a/~")] == [Path("/home/you/a"), Path("/home/you"), Path("/a/~")]
    assert at_home("~nobody-has-this-name/a") == Path("~nobody-has-this-name/a")
