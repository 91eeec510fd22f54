"""Links: rows of desired state, and the one process that acts on each."""

from __future__ import annotations

import pytest

from sbxtui.core.errors import Conflict
from sbxtui.core.model import Registration, SandboxId
from sbxtui.identity import identity_of, own_identity
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.store.links import Link, Links, Wanted
from sbxtui.store.registry import Registry
from tests.store.worker import record

US, INIT = str(own_identity()), str(identity_of(1))
DEAD = "1:1:another-boot"
APP, OTHER = SandboxId("mvm-1"), SandboxId("mvm-2")


def take(links: Links, owner: str = US, *, sandbox: str = "app", sandbox_id: SandboxId = APP, **spec: object) -> Link:
    return links.take(
        context="local", kind="sync", sandbox=sandbox, sandbox_id=sandbox_id, spec=spec, owner=owner, actor="test"
    )


def test_a_link_is_found_by_its_sandbox_with_what_it_shall_keep_true(store: Store) -> None:
    links = Links(store)
    made = take(links, root="/here", mode="push")
    assert links.find("local", "sync", APP) == made
    assert links.list("sync") == links.list("sync", "local") == [made]
    assert (made.spec, made.wanted, made.is_served) == ({"root": "/here", "mode": "push"}, Wanted.RUNNING, True)
    assert links.find("local", "sync", OTHER) is links.find("other", "sync", APP) is None


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
    left = links.find("local", "sync", APP)
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


def tracked(store: Store, name: str, sandbox_id: SandboxId) -> Registration:
    return Registry(store).adopt("local", name, record(sandbox_id), actor="test")


def test_a_link_follows_its_sandbox_to_another_name_while_it_is_acted_on(store: Store) -> None:
    links = Links(store)
    tracked(store, "app", APP)
    link = take(links, root="/here")
    Registry(store).rename("local", "app", "web", actor="test")
    links.say(link, {"state": "watching"})
    links.want(link, Wanted.PAUSED, actor="test")
    found = links.find("local", "sync", APP)
    assert found is not None
    assert (found.sandbox, found.wanted, found.status) == ("web", Wanted.PAUSED, {"state": "watching"})
    tracked(store, "app", OTHER)
    assert links.find("local", "sync", OTHER) is None
    take(links, sandbox_id=OTHER, root="/there")
    assert [(one.sandbox, one.sandbox_id, one.spec["root"]) for one in links.list("sync")] == [
        ("app", OTHER, "/there"),
        ("web", APP, "/here"),
    ]


def test_a_link_ends_with_its_sandbox_and_another_of_the_name_has_none(store: Store) -> None:
    links = Links(store)
    row = tracked(store, "app", APP)
    link = take(links)
    Registry(store).remove_row(row, actor="test")
    assert links.list("sync") == []
    assert not links.serve(link, US)
    links.say(link, {"state": "watching"})
    links.want(link, Wanted.PAUSED, actor="test")
    tracked(store, "app", OTHER)
    assert links.find("local", "sync", OTHER) is None and links.list("sync") == []


def test_what_is_left_of_a_link_of_a_lost_sandbox_is_in_nobodys_way(store: Store) -> None:
    links = Links(store)
    take(links, INIT, sandbox="web", sandbox_id=OTHER, root="/old")
    tracked(store, "app", APP)
    take(links, root="/here")
    Registry(store).rename("local", "app", "web", actor="test")
    assert [(one.sandbox, one.sandbox_id) for one in links.list("sync")] == [("web", APP)]
    take(links, sandbox="web", sandbox_id=OTHER, root="/new")
    assert [(one.sandbox, one.spec["root"]) for one in links.list("sync")] == [("web", "/new")]


def test_a_sandbox_that_is_still_launched_gets_no_link(store: Store) -> None:
    with pytest.raises(Conflict, match="being launched"):
        take(Links(store), sandbox_id=SandboxId(""))
