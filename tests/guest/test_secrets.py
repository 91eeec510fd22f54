"""What stands for secrets in a guest: in every later job's environment, and in no other sandbox's."""

from __future__ import annotations

from sbxguest.jobspec import base_env
from sbxguest.state import GuestSettings, GuestState


def test_placeholders_win_over_the_launch_environment_fill_its_gaps_and_end_with_a_fork() -> None:
    kept: list[bytes] = []
    state = GuestState(GuestSettings(boot_id="b"), keep=kept.append)
    state.set_launch({"OWN": "1", "TOKEN": "in clear"}, "")
    state.set_secrets({"TOKEN": "stand-in"}, {"OWN": "2", "SSL_CERT_FILE": "/ca"})
    restarted = GuestState(GuestSettings(boot_id="b"), keep=kept.append, saved=kept[-1])
    for one in (state, restarted):
        env = base_env(one, "", "")
        assert (env["OWN"], env["TOKEN"], env["SSL_CERT_FILE"]) == ("1", "stand-in", "/ca")
    restarted.renew_boot()
    forked = base_env(restarted, "", "")
    assert (forked["TOKEN"], "SSL_CERT_FILE" in forked) == ("in clear", False)
