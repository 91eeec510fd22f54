"""Prices are lower bounds, and none is told where none is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbxtui.core.model import Context, ContextKind, ContextName, SandboxState
from sbxtui.core.pricing import baseline_usd_per_hour, least_usd_per_hour
from tests.support.fake_services import LOCAL, sandbox

AWS = Context(ContextName("acme"), ContextKind.AWS, region="us-east-1", account_id="123456784821")


@pytest.mark.parametrize(
    ("memory_mib", "usd"), [(512, 0.0315), (1024, 0.0631), (2048, 0.1261), (4096, 0.2522), (8192, 0.5044)]
)
def test_a_size_costs_what_the_price_list_says(memory_mib: int, usd: float) -> None:
    assert baseline_usd_per_hour("us-east-1", memory_mib) == pytest.approx(usd, abs=0.0001)


def test_a_region_without_a_known_price_and_an_unknown_size_have_none() -> None:
    assert baseline_usd_per_hour("eu-north-1", 2048) is None
    assert baseline_usd_per_hour("us-east-1", 0) is None


def test_only_what_runs_and_has_a_known_size_is_counted() -> None:
    rows = (sandbox("a"), sandbox("b", SandboxState.SUSPENDED), sandbox(""), sandbox("c", facts={"memory_mib": 4096}))
    assert least_usd_per_hour(AWS, rows) == pytest.approx(0.1261 + 0.2522, abs=0.0002)
    assert least_usd_per_hour(AWS, rows[1:3]) is None


def test_the_local_cloud_and_unpriced_regions_cost_nothing_that_is_known() -> None:
    assert least_usd_per_hour(LOCAL, (sandbox("a"),)) is None
    assert least_usd_per_hour(replace(AWS, region="eu-north-1"), (sandbox("a"),)) is None
