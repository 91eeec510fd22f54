"""A wish for isolation is granted or refused, never bent."""

from __future__ import annotations

import pytest

from sbxtui.core.errors import RuntimeUnavailable, UsageError
from sbxtui.core.isolation import TIERS, accepts, require, short_isolation, tier_of
from sbxtui.localcloud.runtimes.choose import find_runtime


@pytest.mark.parametrize(
    ("wish", "granted"),
    [
        ("gvisor", ["gvisor"]),
        ("process", ["process"]),
        ("isolation>=gvisor", ["gvisor", "microvm", "firecracker"]),
        ("isolation >= bubblewrap", ["bubblewrap", "gvisor", "microvm", "firecracker"]),
        (">=firecracker", ["firecracker"]),
    ],
)
def test_which_tiers_grant_a_wish(wish: str, granted: list[str]) -> None:
    assert [tier for tier in TIERS if accepts(wish, tier)] == granted
    assert not accepts(">=process", "something else")


def test_a_wish_for_nothing_known_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="names no isolation"):
        accepts("docker", "gvisor")


def test_a_weaker_tier_is_refused_with_what_to_do() -> None:
    require("", "process", hint="")
    require(">=gvisor", "gvisor", hint="")
    with pytest.raises(RuntimeUnavailable, match="this has `bubblewrap`") as caught:
        require("isolation>=gvisor", "bubblewrap", hint="stop it")
    assert caught.value.hint == "stop it"


@pytest.mark.parametrize("runtime", ["process", "bubblewrap", "gvisor"])
def test_what_people_are_told_leads_back_to_the_tier(runtime: str) -> None:
    assert tier_of(find_runtime(runtime).isolation) == runtime
    assert tier_of("Firecracker") == "firecracker"
    assert tier_of("something new") == ""


def test_one_word_is_left_for_tables() -> None:
    assert short_isolation("gVisor (user-space kernel)") == "gVisor"
    assert short_isolation("namespaces (bubblewrap) — shared host kernel") == "namespaces"
