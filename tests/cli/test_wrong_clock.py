"""A local cloud whose clock is off on purpose: seen by everything that asks it, told by doctor, and set right again."""

from __future__ import annotations

from tests.support.sbx import Sbx


def test_a_clock_that_is_off_is_told_by_doctor_and_can_be_set_right(sbx: Sbx) -> None:
    assert sbx("local", "fault", "add", "clock-jump", "--op", "RunMicrovm", "--amount", "7200").code == 2
    sbx.ok("local", "fault", "add", "clock-jump", "--amount", "7200")
    assert sbx("ls").code == 6
    context = {check["name"]: check for check in sbx("doctor", "--json").json}["context"]
    assert (context["status"], "clock" in context["words"]) == ("fail", True)
    assert [rule["kind"] for rule in sbx.ok("local", "fault", "ls", "--json").json] == ["clock-jump"]
    sbx.ok("local", "fault", "clear")
    sbx.ok("ls")
    assert {check["name"]: check for check in sbx.ok("doctor", "--json").json}["context"]["status"] == "ok"
