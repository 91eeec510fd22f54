"""A gVisor that dies half the time is passed over, and every place that shows an isolation says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.localcloud.runtimes.gvisor_choice import digest_of, settle
from sbxtui.settings import load
from tests.contract.test_gvisor_probe import DIES_HALF_THE_TIME
from tests.support.sbx import sbx_home

pytestmark = pytest.mark.long

NAMESPACES = "namespaces (bubblewrap) — shared host kernel"


def test_an_unsound_gvisor_is_passed_over_and_that_is_to_be_seen(tmp_path: Path) -> None:
    with sbx_home(tmp_path / "home") as own:
        images = load(own.environment(), cwd=tmp_path).home.trees_dir / ".images"
        images.mkdir(mode=0o711, parents=True, exist_ok=True)
        program = images.parent / "runsc"
        program.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo "runsc version x" && exit 0\n{DIES_HALF_THE_TIME}\n'
        )
        program.chmod(0o755)
        settle(images, program, "a test", digest_of(program))
        assert own.ok("create", "app", "-m", "512", "--json").json["isolation"] == NAMESPACES
        listed = own.ok("ls")
        assert "namespaces" in listed.out and "of 8 starts" in listed.err
        checks = {check["name"]: check for check in own.ok("doctor", "--json").json}
        assert checks["isolation"]["status"] == "warn"
        assert all(words in checks["isolation"]["words"] for words in (NAMESPACES, "gvisor", "of 8 starts"))
        # What the dashboard's header says is what the local cloud tells.
        assert own.ok("local", "status", "--json").json["isolation"] == NAMESPACES
        refused = own("--json", "--isolation", ">=gvisor", "create", "x")
        assert (refused.code, "of 8 starts" in refused.error["message"]) == (7, True)
        # A reset keeps what was set up; of a test nothing is to be kept.
        (images / "runsc.json").unlink()
        program.unlink()
