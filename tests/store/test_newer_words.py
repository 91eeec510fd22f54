"""Words that only a newer sbx knows, in rows that this one may read: they are shown, and nothing acts upon them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sbxtui.core.errors import NameTaken, StoreTooNew
from sbxtui.core.model import Context, ContextKind, ContextName, LaunchRequest, Phase, Registration
from sbxtui.identity import own_identity
from sbxtui.runner.serving import detached_links
from sbxtui.services.leftovers import is_one_shot, needs_recovery
from sbxtui.services.sync.spec import SyncSpec
from sbxtui.services.targets import for_each
from sbxtui.store.contexts import LOCAL, Contexts
from sbxtui.store.db import Store
from sbxtui.store.links import Link, Links, Wanted
from sbxtui.store.registry import Registry
from tests.store.worker import ARN, record

US = str(own_identity())


def _row_of(store: Store, table: str) -> list[tuple[Any, ...]]:
    return store.rows(f"SELECT * FROM {table}")


@pytest.fixture
def registry(store: Store) -> Registry:
    """One with a row `prod` in a phase of the future."""
    registry = Registry(store)
    facts = {"purpose": "run", "launch": {"env": {}}}
    registry.adopt("local", "prod", record("microvm-1"), actor="test", facts=facts)
    store.rows("UPDATE registrations SET phase = 'hibernated' RETURNING 1")
    return registry


def test_a_sandbox_in_a_phase_of_a_newer_sbx_is_listed_beside_the_others(registry: Registry) -> None:
    registry.adopt("local", "app", record("microvm-2"), actor="test")
    assert {row.name: row.phase for row in registry.list()} == {"prod": Phase.UNKNOWN, "app": Phase.TRACKED}
    assert registry.find("local", "app").id == "microvm-2"


def test_nothing_acts_upon_a_sandbox_in_a_phase_of_a_newer_sbx(store: Store, registry: Registry) -> None:
    before = _row_of(store, "registrations")
    (row,) = registry.list()
    for refused in (
        lambda: registry.find("local", "prod"),
        lambda: registry.find("local", "microvm-1"),
        lambda: registry.find("local", "pr"),
        lambda: registry.get("local", "prod"),
        lambda: registry.rename("local", "prod", "other", actor="test"),
        lambda: registry.remove("local", "prod", actor="test"),
        lambda: registry.remove_row(row, actor="test"),
        lambda: registry.change_labels("local", "prod", {"a": "b"}, actor="test"),
        lambda: registry.change_facts("local", "prod", {"a": "b"}, actor="test"),
        lambda: registry.bind("local", "prod", record("microvm-1"), actor="test"),
    ):
        with pytest.raises(StoreTooNew, match=r"`prod`.*newer sbx") as caught:
            refused()
        assert "upgrade" in caught.value.hint
    with pytest.raises(NameTaken):
        registry.reserve(
            context="local", name="prod", request=LaunchRequest(ARN), client_token="", owner=US, actor="test"
        )
    assert registry.note(row, {"ended": "x"}, kind="sandbox.ended", notes=[{}], actor="test") == row
    assert _row_of(store, "registrations") == before


async def test_what_is_done_to_all_leaves_out_by_name_what_a_newer_sbx_keeps(registry: Registry) -> None:
    registry.adopt("local", "app", record("microvm-2"), actor="test")

    async def act(row: Registration) -> str:
        return f"did {row.name}"

    told = {one.name: one for one in await for_each(registry.list(), act)}
    assert told["app"].words == "did app"
    assert isinstance(told["prod"].error, StoreTooNew)


def test_what_a_newer_sbx_keeps_is_no_leftover(registry: Registry) -> None:
    rows = registry.list()
    assert not needs_recovery(rows, datetime.now(UTC))
    assert not any(map(is_one_shot, rows))


def _take(links: Links) -> Link:
    return links.take(
        context="local",
        kind="sync",
        sandbox="app",
        sandbox_id=record("microvm-1").id,
        spec={"root": "/here"},
        owner="",
        actor="test",
        is_detached=True,
    )


def test_nothing_acts_upon_a_link_of_which_a_newer_sbx_wants_something(store: Store) -> None:
    links = Links(store)
    link = _take(links)
    store.rows("UPDATE links SET wanted = 'archived' RETURNING 1")
    before = _row_of(store, "links")
    (listed,) = links.list("sync")
    assert listed.wanted is Wanted.UNKNOWN
    assert links.find("local", "sync", link.sandbox_id) == listed
    assert detached_links(store, "sync") == []
    assert not links.serve(listed, US)
    for refused in (
        lambda: _take(links),
        lambda: links.want(link, Wanted.STOPPED, actor="test"),
        lambda: links.forget(link, actor="test"),
    ):
        with pytest.raises(StoreTooNew, match="`app`"):
            refused()
    assert _row_of(store, "links") == before


@pytest.mark.parametrize("word", ["mode", "on_conflict"])
def test_a_sync_with_a_word_of_a_newer_sbx_is_refused_by_name(store: Store, word: str) -> None:
    link = _take(Links(store))
    store.rows("UPDATE links SET spec = ? RETURNING 1", (f'{{"root": "/here", "{word}": "telepathy"}}',))
    (found,) = Links(store).list("sync")
    with pytest.raises(StoreTooNew, match=f"`{link.sandbox}`"):
        SyncSpec.of(found)


def test_a_context_of_a_kind_of_a_newer_sbx_is_left_out_by_name(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    contexts = Contexts(store)
    contexts.add(Context(ContextName("moon"), ContextKind.AWS, region="eu-west-1"))
    store.rows("UPDATE contexts SET kind = 'lunar' RETURNING 1")
    before = _row_of(store, "contexts")
    assert contexts.list() == [LOCAL]
    assert "`moon`" in caplog.text
    for refused in (contexts.get, contexts.use, contexts.remove):
        with pytest.raises(StoreTooNew, match="`moon`"):
            refused("moon")
    with pytest.raises(NameTaken):
        contexts.check_free("moon")
    assert _row_of(store, "contexts") == before
