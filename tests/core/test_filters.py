"""One filter language for every face."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sbxtui.core.errors import UsageError
from sbxtui.core.filters import parse_filter, sort_sandboxes
from sbxtui.core.model import ContextName, Sandbox, SandboxId, SandboxState

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def sandbox(
    name: str, *, state: SandboxState = SandboxState.RUNNING, age_s: int = 60, image: str = "sbx-base-512"
) -> Sandbox:
    return Sandbox(
        context=ContextName("local"),
        name=name,
        id=SandboxId(f"microvm-{name}"),
        state=state,
        image_arn=f"arn:aws:lambda:local-1:000000000000:microvm-image:{image}",
        image_version="1.0",
        created_at=NOW - timedelta(seconds=age_s),
        labels={"team": "blue"},
    )


FLEET = [
    sandbox("api", age_s=30),
    sandbox("web", state=SandboxState.SUSPENDED, age_s=7200),
    sandbox("ci-1", image="py-tools-2048", age_s=600),
]
# What `ci-1` cost, nobody knows.
SPENT_USD = {"api": 0.02, "web": 0.35}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["api", "web", "ci-1"]),
        ("state:run", ["api", "ci-1"]),
        ("state=RUNNING", ["api", "ci-1"]),
        ("state=run", []),
        ("age<1h", ["api", "ci-1"]),
        ("age>5m", ["web", "ci-1"]),
        ("!image:py", ["api", "web"]),
        ("state:run !image:py", ["api"]),
        ("web", ["web"]),
        ("!web", ["api", "ci-1"]),
        ("label:team=blue", ["api", "web", "ci-1"]),
        ("'ci-1'", ["ci-1"]),
        ("tracked=yes", ["api", "web", "ci-1"]),
        ("cost>.1", ["web"]),
        ("cost<$0.1", ["api"]),
        ("!cost>.1", ["api", "ci-1"]),
        ("state:run cost>0", ["api"]),
    ],
)
def test_terms_join_and_negate(text: str, names: list[str]) -> None:
    wanted = parse_filter(text)
    assert [one.name for one in FLEET if wanted.matches(one, NOW, lambda one: SPENT_USD.get(one.name))] == names


@pytest.mark.parametrize(
    "text", ["nosuch:x", "age:1h", "age<soon", "state<run", "cost:1", "cost>dear", "cost<nan", "'open"]
)
def test_a_filter_that_cannot_be_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    assert caught.value.hint or "no duration" in caught.value.message


def test_sorting_takes_several_keys_and_directions() -> None:
    assert [one.name for one in sort_sandboxes(FLEET, "age")] == ["api", "ci-1", "web"]
    assert [one.name for one in sort_sandboxes(FLEET, "-age")] == ["web", "ci-1", "api"]
    assert [one.name for one in sort_sandboxes(FLEET, "state,-name")] == ["ci-1", "api", "web"]
    with pytest.raises(UsageError):
        sort_sandboxes(FLEET, "colour")
