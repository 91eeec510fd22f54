"""Each check of the conformance suite notices when its rule is gone from the local cloud."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import tests
from tests.localcloud.conformance.edits import EDITS, Edit
from tests.localcloud.conformance.refusals import REFUSALS
from tests.localcloud.conformance.scene import BUCKET, FACTS, Refusal, Scene
from tests.localcloud.conformance.shapes import Broken, broken_requests
from tests.support.local_cloud import local_cloud

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
CHECKS = {one.check.__name__: one.check for one in FACTS}


@dataclass(frozen=True)
class Mutant:
    """A local cloud whose raises can be taken out, and the folder that says which."""

    scene: Scene
    folder: Path

    def fails(self, check: Callable[[Scene], None]) -> bool:
        """Whether a check fails now."""
        try:
            check(self.scene)
        # Whatever it is that a missing rule leads to, the check did not pass.
        except Exception:  # noqa: BLE001
            return True
        return False

    def is_noticed_by(self, check: Callable[[Scene], None]) -> bool:
        """Whether the check passes, and fails without one of the rules that came into play meanwhile."""
        happened, removed = self.folder / "happened", self.folder / "removed"
        happened.write_text("")
        check(self.scene)
        rules = dict.fromkeys(reversed(happened.read_text().splitlines()))
        try:
            for rule in sorted(rules, key=lambda one: not one.startswith("Value at")):
                removed.write_text(rule)
                if self.fails(check):
                    return True
            return False
        finally:
            removed.write_text("")


@contextlib.contextmanager
def mutant(root: Path, edit: Edit | None = None) -> Iterator[Mutant]:
    """A local cloud of the kind; its rules are all there, but for what an edit changes."""
    folder = root / "mutant"
    folder.mkdir(parents=True)
    if edit is not None:
        (folder / "edit.json").write_text(json.dumps({"module": edit.module, "old": edit.old, "new": edit.new}))
    options: Sequence[str] = ("--runtime", "process", "--exit-when-idle", "0")
    env = {"PYTHONPATH": ":".join([str(Path(tests.__file__).parents[1]), *sys.path])}
    program = ("tests.localcloud.conformance.mutant", str(folder))
    with local_cloud(root, *options, env=env, program=program) as cloud:
        scene = Scene(cloud)
        scene.client("s3").create_bucket(Bucket=BUCKET)
        scene.kept["{vm}"] = scene.run()
        yield Mutant(scene, folder)


def test_every_refusal_is_noticed_when_it_is_gone(tmp_path: Path) -> None:
    unnoticed: list[str] = []
    checks: list[Broken | Refusal] = [*broken_requests(), *REFUSALS]
    with mutant(tmp_path) as changed:
        for check in checks:
            if not changed.is_noticed_by(check.check):
                unnoticed.append(check.id)
    sys.stderr.write(f"{len(checks) - len(unnoticed)} of {len(checks)} checks were seen to fail\n")
    assert unnoticed == []


def test_every_fact_has_its_edit() -> None:
    assert sorted(edit.name for edit in EDITS) == sorted(CHECKS)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_a_fact_does_not_hold_without_its_rule(tmp_path: Path, edit: Edit) -> None:
    with mutant(tmp_path, edit) as changed:
        for name in edit.after:
            CHECKS[name](changed.scene)
        assert changed.fails(CHECKS[edit.name])
