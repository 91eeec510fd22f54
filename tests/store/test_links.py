"""Links: rows of desired state, and the one process that acts on each."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.core.errors import Conflict
from sbxtui.home import Home
from sbxtui.identity import identity_of, own_identity
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.store.links import Link, Links, Wanted

US, INIT = str(own_identity()), str(identity_of(1))
DEAD = "1:1:another-boot"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(Home(*(tmp_path / name for name in ("config", "state", "cache", "log"))))


def take(links: Links, owner: str = US, **spec: object) -> Link:
    return links.take(
        context="local", kind="sync", sandbox="app", sandbox_id="mvm-1", spec=spec, owner=owner, actor="test"
    )


def test_a_link_is_found_by_its_sandbox_with_what_it_shall_keep_true(store: Store) -> None:
    links = Links(store)
    made = take(links, root="/here", mode="push")
    assert links.find("local", "sync", "app") == made
    assert links.list("sync") == links.list("sync", "local") == [made]
    assert (made.spec, made.wanted, made.is_served) == ({"root": "/here", "mode": "push"}, Wanted.RUNNING, True)
    assert links.find("local", "sync", "other") is links.find("other", "sync", "app") is None


def test_a_link_whose_owner_lives_is_not_taken_and_a_dead_ones_is(store: Store) -> None:
    links = Links(store)
    take(links, INIT)
    with pytest.raises(Conflict, match="by process 1 already"):
        take(links)
    take(Links(store), INIT)
    store.rows("UPDATE links SET owner = ? RETURNING 1", (DEAD,))
    assert take(links).owner == US


def test_a_link_outlives_its_owner_with_what_was_said_of_it(store: Store) -> None:
    links = Links(store)
    link = take(links)
    links.say(link, {"state": "watching", "pending": 3})
    links.leave(link, US)
    left = links.find("local", "sync", "app")
    assert left is not None and not left.is_served and left.status == {"state": "watching", "pending": 3}
    assert links.serve(left, US) and not links.serve(left, INIT)
    links.want(left, Wanted.PAUSED, actor="test")
    with pytest.raises(Conflict):
        links.forget(left, actor="test")
    links.leave(link, US)
    links.forget(left, actor="test")
    assert links.list("sync") == []
    kinds = [event.kind for event in Events(store).tail(10)]
    assert kinds == ["sync.start", "sync.paused", "sync.stop"]
