"""Which runsc is trusted: one that starts every time, on a platform it has, tried once and remembered."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sbxtui.core.errors import RuntimeUnavailable, SbxError, UsageError
from sbxtui.localcloud.runtimes.choose import candidates_for, choose_runtime
from sbxtui.localcloud.runtimes.gvisor_choice import digest_of, settle
from sbxtui.localcloud.runtimes.gvisor_probe import build_age, probe
from sbxtui.localcloud.setup import set_up
from tests.support.sandboxes import Place

SOUND = "echo alive"
# Starts have state folders of their own, named by number: every other one dies.
DIES_HALF_THE_TIME = 'case "$1" in *[02468]) echo alive;; *) echo "fatal error: assertTaskGoroutine" >&2; exit 2;; esac'
WITHOUT_SYSTRAP = 'case "$2" in *systrap) echo "unknown platform" >&2; exit 128;; esac; echo alive'


def _runsc(place: Place, script: str, *, version: str = "release-20240729.0") -> Path:
    """A program that answers as runsc does, and keeps count of its starts."""
    folder = place.root / "bin"
    folder.mkdir(mode=0o755, exist_ok=True)
    program = folder / "runsc"
    counted = f"echo >> {folder}/count 2>/dev/null\n"
    told = f'[ "$1" = --version ] && echo "runsc version {version}" && exit 0\n'
    program.write_text("#!/bin/sh\n" + told + counted + script + "\n")
    program.chmod(0o755)
    (folder / "count").touch()
    (folder / "count").chmod(0o666)
    images = place.root / "images"
    images.mkdir(mode=0o711, exist_ok=True)
    settle(images, program, "a test", digest_of(program))
    return program


def _starts(place: Place) -> int:
    return len((place.root / "bin" / "count").read_text())


def test_a_runsc_that_starts_every_time_is_chosen_and_not_tried_again(place: Place) -> None:
    program = _runsc(place, SOUND)
    answer = probe(place.root / "images")
    tried = _starts(place)
    assert answer == probe(place.root / "images")
    assert (answer.ok, answer.path, answer.version) == (True, str(program), "release-20240729.0")
    assert answer.how == {"platform": "systrap"}
    assert tried == _starts(place) == 8


def test_a_runsc_that_dies_half_the_time_is_passed_over_and_the_reason_is_told(place: Place) -> None:
    _runsc(place, DIES_HALF_THE_TIME)
    choice = choose_runtime("", place.root / "images")
    assert choice.runtime.id == "bubblewrap"
    assert "of 8 starts" in choice.passed_over[0]
    assert "assertTaskGoroutine" in choice.passed_over[0]


def test_a_requirement_fails_where_only_less_would_do(place: Place) -> None:
    _runsc(place, DIES_HALF_THE_TIME)
    for wish in ("gvisor", "isolation>=gvisor", ">=gvisor"):
        with pytest.raises(RuntimeUnavailable, match="of 8 starts"):
            choose_runtime(wish, place.root / "images")


def test_an_old_build_without_systrap_runs_with_ptrace(place: Place) -> None:
    _runsc(place, WITHOUT_SYSTRAP)
    assert probe(place.root / "images").how == {"platform": "ptrace"}


def test_a_missing_runsc_names_the_verb_that_fetches_one(place: Place) -> None:
    program = _runsc(place, SOUND)
    program.unlink()
    answer = probe(place.root / "images")
    assert answer.ok or "sbx local setup" in answer.why_not


def test_what_a_wish_allows() -> None:
    assert [one.id for one in candidates_for("")] == ["gvisor", "bubblewrap"]
    assert [one.id for one in candidates_for("isolation>=bubblewrap")] == ["gvisor", "bubblewrap"]
    assert [one.id for one in candidates_for(">=gvisor")] == ["gvisor"]
    assert [one.id for one in candidates_for("process")] == ["process"]
    with pytest.raises(UsageError, match="NOT isolated"):
        candidates_for(">=process")


def test_set_up_with_a_given_runsc_keeps_it_and_refuses_an_unsound_one(place: Place) -> None:
    images, cache = place.root / "images", place.root / "cache"
    program = _runsc(place, SOUND)
    (images / "runsc.json").unlink()
    found = set_up(images, cache, program)
    assert (found.path, found.platform) == (str(program), "systrap")
    other = place.root / "other"
    other.mkdir(mode=0o755)
    (other / "runsc").write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    (other / "runsc").chmod(0o755)
    with pytest.raises(SbxError, match="broken"):
        set_up(images, cache, other / "runsc")
    assert json.loads((images / "runsc.json").read_text())["path"] == str(program)


def test_a_program_that_changed_since_it_was_settled_on_is_refused_unstarted(place: Place) -> None:
    program = _runsc(place, SOUND)
    before = program.read_text()
    program.write_text(before + "# changed\n")
    choice = choose_runtime("", place.root / "images")
    assert choice.runtime.id == "bubblewrap"
    assert "changed since `sbx local setup`" in choice.passed_over[0]
    assert _starts(place) == 0
    program.write_text(before)
    assert probe(place.root / "images").ok


def test_a_pointer_without_a_hash_is_refused(place: Place) -> None:
    program = _runsc(place, SOUND)
    (place.root / "images" / "runsc.json").write_text(json.dumps({"path": str(program)}))
    assert "sbx local setup" in probe(place.root / "images").why_not


def test_a_program_is_tried_before_anything_points_to_it(place: Place) -> None:
    program = _runsc(place, f"[ ! -e {place.root}/images/runsc.json ] && echo alive")
    (place.root / "images" / "runsc.json").unlink()
    assert set_up(place.root / "images", place.root / "cache", program).path == str(program)


@pytest.mark.parametrize(
    ("version", "age"),
    [
        ("0.0~20240729.0", "2 years old"),
        ("release-20260801.0", "4 months old"),
        ("release-20261125.0", "1 months old"),
        ("unknown", ""),
        ("20249999", ""),
    ],
)
def test_the_age_of_a_build_is_told_by_its_version(version: str, age: str) -> None:
    assert build_age(version, datetime(2026, 11, 29, tzinfo=UTC)) == age
