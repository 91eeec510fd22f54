"""Output of any length in replies of a known size: head, tail, totals, and text that is always text."""

from __future__ import annotations

import base64
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sbxtui.mcp_server.clip import Clip
from sbxtui.mcp_server.reply import Reply, success

FRAME_BYTES = 1_000_000


def test_what_fits_is_shown_whole() -> None:
    clip = Clip(100)
    clip.add(b"one\n")
    clip.add(b"two\n")
    shown = clip.shown(50)
    assert (shown.text, shown.is_truncated, shown.total_bytes, shown.returned_bytes) == ("one\ntwo\n", False, 8, 8)


def test_of_a_flood_the_head_and_the_tail_are_shown_with_what_was_left_out() -> None:
    clip = Clip(1_000)
    for number in range(100_000):
        clip.add(b"%06d\n" % number)
    shown = clip.shown(1_000)
    assert shown.text.startswith("000000\n000001\n") and shown.text.endswith("099998\n099999\n")
    assert shown.total_bytes == 700_000 and shown.is_truncated and shown.returned_bytes <= 1_000
    assert f"{shown.total_bytes - shown.returned_bytes} bytes left out" in shown.text


def test_the_beginning_alone_is_shown_of_what_is_read_on_from_there() -> None:
    clip = Clip.of("äöü".encode() * 10, 7, total_bytes=60)
    assert (clip.shown(7).text, clip.shown(7).returned_bytes) == ("äöü", 6)
    clip = Clip.of(bytes(range(256)), 100, total_bytes=256, is_base64=True)
    assert base64.b64decode(clip.shown(100).text) == bytes(range(100))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3_000), st.integers(1, 400), st.integers(1, 400))
def test_whatever_the_bytes_what_is_shown_is_text_and_its_counts_hold(data: bytes, keep: int, limit: int) -> None:
    clip = Clip(keep)
    for start in range(0, len(data), 97):
        clip.add(data[start : start + 97])
    shown = clip.shown(min(keep, limit))
    json.loads(json.dumps(shown.text)).encode()
    assert shown.total_bytes == len(data)
    assert shown.is_truncated == (shown.returned_bytes < shown.total_bytes)


def test_no_reply_is_larger_than_clients_take_however_its_bytes_are_escaped() -> None:
    for data in (
        b"\x01" * 900_000,
        b"\\" * 900_000,
        "\ud800".encode("utf-8", "surrogatepass") * 300_000,
        b"a" * 900_000,
    ):
        out, err = Clip(800_000), Clip(800_000)
        out.add(data)
        err.add(data)
        result = success(Reply({"stdout": out, "stderr": err, "name": "x\udc80"}, limit_bytes=800_000))
        frame = result.model_dump_json(by_alias=True).encode()
        assert len(frame) < FRAME_BYTES
        told = json.loads(result.content[0].text)  # type: ignore[union-attr]  # the first block is text
        assert told["data"]["stdout_truncated"] and told["data"]["stdout_total_bytes"] == len(data)
        assert told == result.structured_content


def test_small_output_leaves_its_room_to_the_large_one() -> None:
    out, err = Clip(10_000), Clip(10_000)
    out.add(b"x" * 9_000)
    err.add(b"y" * 10)
    told = success(Reply({"stdout": out, "stderr": err}, limit_bytes=9_500)).structured_content["data"]
    assert not told["stdout_truncated"] and not told["stderr_truncated"]
