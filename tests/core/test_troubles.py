"""What is told of trouble: once, again when it came back, and in harmless words."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sbxtui.core.model import Event
from sbxtui.core.troubles import Silence, is_good_news, link_news, silence_news, trouble_words, usage_news
from sbxtui.core.usage import Usage
from tests.support.fake_services import job, now

GIB = 2**30


def usage(free_gib: float = 8, *, oom: int = 0, jumps: int = 0) -> Usage:
    return Usage(
        now(), disk_limit_bytes=10 * GIB, disk_free_bytes=int(free_gib * GIB), oom_kills=oom, clock_jumps=jumps
    )


def test_a_full_disk_is_told_once_and_again_after_it_was_eased() -> None:
    full = usage_news({}, usage(0.5))
    assert [kind for kind, _ in full.events] == ["trouble.disk"] and full.events[0][1] == {"percent": 95}
    assert usage_news(full.told, usage(0.4)).events == []
    # A little room is no end of it.
    assert usage_news(full.told, usage(1.2)).told["disk"] is True
    eased = usage_news(full.told, usage(3))
    assert "disk" not in eased.told
    assert [kind for kind, _ in usage_news(eased.told, usage(0.5)).events] == ["trouble.disk"]


def test_only_what_is_new_of_kills_and_jumps_is_told() -> None:
    first = usage_news({}, usage(oom=3, jumps=1))
    assert first.events == []
    later = usage_news(first.told, usage(oom=5, jumps=2))
    assert [(kind, dict(data)) for kind, data in later.events] == [
        ("trouble.oom", {"kills": "2 processes were killed"}),
        ("trouble.clock", {"jumps": 1}),
    ]
    assert usage_news(later.told, replace(usage(), oom_kills=None, clock_jumps=None)).events == []


def test_a_job_is_silent_from_when_it_was_seen_to_say_its_last_word() -> None:
    silence, began = Silence(), now()
    talking = job("api", "make", id="j1", cursor=5)
    silence.of([talking], began)
    assert silence.of([replace(talking, cursor=6)], began + timedelta(minutes=20))[0][1] == timedelta(0)
    quiet = silence.of([replace(talking, cursor=6)], began + timedelta(minutes=31))
    news = silence_news({}, quiet)
    assert [dict(data) for _, data in news.events] == [{"job": "j1", "minutes": 11, "program": "make"}]
    assert silence_news(news.told, quiet).events == []


def test_a_job_that_waits_for_input_is_told_sooner_and_again_when_it_asks_again_but_no_shell_at_its_prompt() -> None:
    silence, began = Silence(), now()
    asking = job("api", "TOKEN=a npm init --token s3cret", id="j1", cursor=5, awaits_input=True)
    shells = [job("api", command, id=command, awaits_input=True) for command in ("bash -l", "/bin/sh", "zsh -il")]
    silence.of([asking, *shells], began)
    waiting = silence.of([asking, *shells], began + timedelta(seconds=31))
    news = silence_news({}, waiting)
    assert [(kind, dict(data)) for kind, data in news.events] == [("trouble.waiting", {"job": "j1", "program": "npm"})]
    assert silence_news(news.told, waiting).events == []
    further = [replace(asking, cursor=9)]
    silence.of(further, began + timedelta(seconds=40))
    again = silence_news(news.told, silence.of(further, began + timedelta(seconds=75)))
    assert [kind for kind, _ in again.events] == ["trouble.waiting"]
    # At its prompt for long, a shell is no more silent than a job.
    assert [kind for kind, _ in silence_news({}, silence.of(further, began + timedelta(minutes=30))).events] == [
        "trouble.waiting"
    ]


def test_a_guest_that_was_started_again_is_told_once_and_whether_its_jobs_went_on() -> None:
    first = usage_news({}, replace(usage(), boot_id="b1", server_id="s1"))
    assert first.events == [] and usage_news(first.told, usage()).events == []
    again = usage_news(first.told, replace(usage(), boot_id="b1", server_id="s2"))
    assert [kind for kind, _ in again.events] == ["trouble.server"]
    assert usage_news(again.told, replace(usage(), boot_id="b1", server_id="s2")).events == []
    anew = usage_news(again.told, replace(usage(), boot_id="b2", server_id="s3"))
    assert [kind for kind, _ in anew.events] == ["trouble.boot"]


def test_a_clock_that_is_off_is_told_once_while_it_is_and_each_time_it_was_set() -> None:
    assert usage_news({}, replace(usage(), clock_off_s=1.0)).events == []
    off = usage_news({}, replace(usage(), clock_off_s=-61.0))
    assert [(kind, dict(data)) for kind, data in off.events] == [
        ("trouble.clock-off", {"seconds": 61, "way": "behind"})
    ]
    assert usage_news(off.told, replace(usage(), clock_off_s=-70.0)).events == []
    right = usage_news(off.told, replace(usage(), clock_off_s=0.0))
    assert "clock_off" not in right.told
    was_set = usage_news(right.told, replace(usage(), clock_off_s=3600.0, clock_was_set=True))
    assert [(kind, dict(data)) for kind, data in was_set.events] == [
        ("trouble.clock-set", {"seconds": 3600, "way": "ahead of"})
    ]


def test_a_halted_sync_is_told_once_for_each_reason() -> None:
    news = link_news({}, {"state": "halted", "reason": "the folder is gone"})
    assert news.events == [("trouble.link", {"reason": "the folder is gone"})]
    assert link_news(news.told, {"state": "halted", "reason": "the folder is gone"}).events == []
    assert "link" not in link_news(news.told, {"state": "watching"}).told


def test_words_are_harmless_and_other_events_have_none() -> None:
    data = {"job": "j1", "minutes": 10, "program": "evil\x1b]0;title\x07 {0} {minutes.__class__}"}
    event = Event(1, now(), "local", "trouble.silent", "api\x1b[31m", "watch", data)
    words = trouble_words(event)
    assert words == "api: job j1 has said nothing for 10 minutes: evil {0} {minutes.__class__}"
    assert trouble_words(replace(event, kind="sandbox.tracked")) == ""
    assert trouble_words(replace(event, data={})) == "api: trouble.silent"


def test_the_end_of_a_job_that_took_long_is_told_and_of_no_other() -> None:
    event = Event(
        1, now(), "local", "job.exit", "api", "cli:you", {"job": "0123456789ab", "exit_code": 0, "took_s": 725}
    )
    assert trouble_words(event) == "api: job 01234567 ended with 0 after 12m" and is_good_news(event)
    assert trouble_words(replace(event, data={"job": "j", "exit_code": 0})) == ""
    failed = replace(event, data={**event.data, "exit_code": 3})
    assert "ended with 3" in trouble_words(failed) and not is_good_news(failed)
