"""Names and outputs of `asb`: whatever shape its files have, they are read once and never changed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sbxtui.core.model import Context, ContextKind, ContextName
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.store.outputs import Outputs
from sbxtui.store.registry import Registry
from sbxtui.store.seed import SeedReport, adopt_seed

WORK = Context(ContextName("work"), ContextKind.AWS, region="us-east-1", account_id="123456789012")
ID = "microvm-0a1b2c3d-0000-4000-8000-00000000000"
IMAGE = "arn:aws:lambda:us-east-1:123456789012:microvm-image:agent-sandbox-guest"
ROLE = "arn:aws:iam::123456789012:role/agent-sandbox-exec"


class Seed:
    """The two files of `asb` in a folder of the test."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.state = folder / "state.json"
        self.infra = folder / "infra-state.json"
        self._store = store

    def adopt(self, *, state: Any = None, infra: Any = None, context: Context = WORK) -> SeedReport:
        for path, content in ((self.state, state), (self.infra, infra)):
            if content is not None:
                path.write_text(content if isinstance(content, str) else json.dumps(content))
        return adopt_seed(self._store, context, state_file=self.state, infra_state_file=self.infra, actor="test")


@pytest.fixture
def seed(tmp_path: Path, store: Store) -> Seed:
    return Seed(tmp_path, store)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"app": ID + "1", "web": ID + "2"}, id="name to id"),
        pytest.param({"app": {"microvm_id": ID + "1"}, "web": {"microvmId": ID + "2"}}, id="name to facts"),
        pytest.param({"sandboxes": {"app": {"id": ID + "1"}, "web": {"id": ID + "2"}}}, id="container"),
        pytest.param({"version": 1, "sandboxes": {"app": ID + "1", "web": ID + "2"}}, id="container beside a version"),
        pytest.param([{"name": "app", "id": ID + "1"}, {"name": "web", "vm_id": ID + "2"}], id="list"),
        pytest.param(
            {"sandboxes": [{"name": "app", "id": ID + "1"}, {"name": "web", "id": ID + "2"}]}, id="list inside"
        ),
        pytest.param({"app": {"vm": ID + "1"}, "web": {"handle": ID + "2", "ok": True}}, id="unknown keys"),
    ],
)
def test_names_are_adopted_from_any_shape(seed: Seed, store: Store, state: Any) -> None:
    report = seed.adopt(state=state)
    assert sorted(report.names) == ["app", "web"]
    assert {row.name: row.id for row in Registry(store).list("work")} == {"app": ID + "1", "web": ID + "2"}


def test_what_asb_knew_of_a_sandbox_is_kept(seed: Seed, store: Store) -> None:
    facts = {
        "microvm_id": ID + "1",
        "endpoint": "https://x.lambda-microvm.us-east-1.on.aws/",
        "image_arn": IMAGE,
        "execution_role_arn": ROLE,
        "created_at": "2026-05-01T10:00:00Z",
        "region": "us-east-1",
    }
    seed.adopt(state={"app": facts})
    row = Registry(store).get("work", "app")
    assert row.endpoint == "x.lambda-microvm.us-east-1.on.aws"
    assert (row.request.image_arn, row.request.execution_role_arn) == (IMAGE, ROLE)
    assert row.created_at.year == 2026
    assert Events(store).list()[0].kind == "sandbox.adopted"


def test_a_file_is_read_once_until_it_changes(seed: Seed, store: Store) -> None:
    assert seed.adopt(state={"app": ID + "1"}).names == ("app",)
    Registry(store).remove("work", "app", actor="test")
    assert seed.adopt() == SeedReport()
    assert seed.adopt(state={"app": ID + "1", "web": ID + "2"}).names == ("app", "web")


def test_the_files_are_never_changed(seed: Seed) -> None:
    seed.adopt(state={"app": ID + "1"}, infra={"outputs": {"image_arn": IMAGE}})
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in (seed.state, seed.infra)]
    os.chmod(seed.state, 0o400)
    seed.adopt()
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in (seed.state, seed.infra)] == before


def test_names_that_cannot_be_or_are_taken_get_near_ones_and_say_so(seed: Seed, store: Store) -> None:
    Registry(store)
    report = seed.adopt(state={"My_App": ID + "1", "exec": ID + "2", "my-app": ID + "3", "日本": ID + "4"})
    names = {row.id[-1]: row.name for row in Registry(store).list("work")}
    assert names["1"] == "my-app"
    assert names["2"] == "exec-1"
    assert names["3"] == "my-app-2"
    assert names["4"]
    assert len(report.notices) == 4


def test_a_sandbox_that_has_a_name_already_keeps_it(seed: Seed, store: Store) -> None:
    seed.adopt(state={"app": ID + "1"})
    Registry(store).rename("work", "app", "brave-fox", actor="test")
    assert seed.adopt(state={"app": ID + "1", "x": 1}).names == ()
    assert [row.name for row in Registry(store).list("work")] == ["brave-fox"]


def test_sandboxes_of_other_regions_and_accounts_are_left_out_and_named(seed: Seed, store: Store) -> None:
    report = seed.adopt(
        state={
            "far": {"id": ID + "1", "region": "eu-west-1"},
            "foreign": {"id": ID + "2", "image_arn": IMAGE.replace("123456789012", "999999999999")},
        }
    )
    assert report.names == ()
    assert "eu-west-1" in report.notices[0]
    assert "999999999999" in report.notices[1]


@pytest.mark.parametrize(
    "infra",
    [
        pytest.param({"outputs": {"image_arn": IMAGE, "execution_role_arn": ROLE}}, id="outputs"),
        pytest.param({"image_arn": IMAGE, "execution_role_arn": ROLE}, id="flat"),
        pytest.param({"stacks": {"dev": {"outputs": {"image_arn": IMAGE, "execution_role_arn": ROLE}}}}, id="stacks"),
        pytest.param({"outputs": {"image_arn": {"value": IMAGE}, "execution_role_arn": {"value": ROLE}}}, id="values"),
        pytest.param([{"outputs": {"image_arn": IMAGE}}, {"outputs": {"execution_role_arn": ROLE}}], id="projects"),
    ],
)
def test_outputs_are_adopted_from_any_shape(seed: Seed, store: Store, infra: Any) -> None:
    report = seed.adopt(infra=infra)
    assert report.outputs == ("execution_role_arn", "image_arn")
    assert Outputs(store).get("work", "image_arn") == IMAGE
    assert Outputs(store).get("work", "execution_role_arn") == ROLE
    assert "asb" in Outputs(store).list("work")[0].source


def test_outputs_with_several_values_are_not_guessed(seed: Seed, store: Store) -> None:
    infra = {"dev": {"image_arn": IMAGE}, "prod": {"image_arn": IMAGE + "-prod"}}
    report = seed.adopt(infra=infra)
    assert report.outputs == ()
    assert "2 values of `image_arn`" in report.notices[0]


def test_of_two_regions_the_one_of_the_context_counts(seed: Seed, store: Store) -> None:
    infra = {"a": {"image_arn": IMAGE.replace("us-east-1", "eu-west-1")}, "b": {"image_arn": IMAGE}}
    assert seed.adopt(infra=infra).outputs == ("image_arn",)
    assert Outputs(store).get("work", "image_arn") == IMAGE


def _deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[]",
        "{}",
        "42",
        '"text"',
        "{broken",
        "\x00\xff",
        _deep(50),
        _deep(100_000),
        '{"app": {"id": 7}}',
        '{"app": null}',
        '{"sandboxes": {"sandboxes": {"sandboxes": []}}}',
        '[[["a"]]]',
        '{"": "microvm-12345678"}',
        '{"app": {"id": "x/../y"}}',
    ],
)
def test_files_that_make_no_sense_adopt_nothing_and_harm_nothing(seed: Seed, store: Store, content: str) -> None:
    report = seed.adopt(state=content, infra=content)
    assert (report.names, report.outputs) == ((), ())
    assert Registry(store).list() == []


def test_hostile_text_in_the_files_is_made_harmless(seed: Seed, store: Store) -> None:
    state = {"\x1b[2Japp": {"id": ID + "1", "endpoint": "evil\x1b]0;x\x07host", "image_arn": "a\nb"}}
    report = seed.adopt(state=state)
    shown = repr(Registry(store).list()) + "".join(report.notices)
    assert "\\x1b" not in shown
    assert "\x1b" not in shown


def test_missing_files_are_nothing_to_speak_of(seed: Seed) -> None:
    assert seed.adopt() == SeedReport()


def test_a_huge_file_is_not_read(seed: Seed) -> None:
    with seed.state.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    assert "too large" in seed.adopt().notices[0]


def test_a_local_context_adopts_nothing(seed: Seed, store: Store) -> None:
    local = Context(ContextName("local"), ContextKind.LOCAL)
    assert seed.adopt(state={"app": ID + "1"}, context=local) == SeedReport()
    assert seed.adopt(state={"app": ID + "1"}).names == ("app",)
