"""The command line and the dashboard, each command in a new process on the local cloud."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.support import SBX, BenchHome, Row, bench_home, interleaved, milliseconds, ratio_row, run_child

ROUNDS = 9
FILE_BYTES = 100 * 10**6
_FIRST_FRAME_CHARACTERS = 200
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\)|[ -/]*[0-~])", re.DOTALL)

_BARE_LIST = """
import boto3, os
client = boto3.client("lambda-microvms", endpoint_url=os.environ["AWS_ENDPOINT_URL_LAMBDA_MICROVMS"])
print([item["microvmId"] for page in client.get_paginator("list_microvms").paginate() for item in page["items"]])
"""

_BARE_SCREEN = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("x" * 400)
Bare().run()
"""


def run() -> list[Row]:
    """Rows of all command line figures; takes about a minute."""
    with bench_home() as home:
        created_s = home.sbx("create", "bench").duration_s + home.sbx("exec", "bench", "--", "true").duration_s
        return [
            *_start_up(home),
            *_listing(home),
            *_commands(home, created_s),
            *_files(home),
            *_first_frame(home),
        ]


def _start_up(home: BenchHome) -> list[Row]:
    ours, bare = interleaved(
        lambda: home.sbx("--help").duration_s,
        lambda: run_child([sys.executable, "-c", "pass"]).duration_s,
        rounds=ROUNDS,
    )
    return [ratio_row("`sbx --help`", ours, bare, "`python -c pass`")]


def _listing(home: BenchHome) -> list[Row]:
    env = {**home.env, **_client_env(home)}
    ours, bare = interleaved(
        lambda: home.sbx("ls").duration_s,
        lambda: run_child([sys.executable, "-c", _BARE_LIST], env=env).duration_s,
        rounds=ROUNDS,
    )
    return [ratio_row("`sbx ls`", ours, bare, "a bare boto3 script that lists")]


def _commands(home: BenchHome, first_create_s: float) -> list[Row]:
    ours, bare = interleaved(
        lambda: home.sbx("exec", "bench", "--", "true").duration_s,
        lambda: run_child([sys.executable, "-c", "pass"]).duration_s,
        rounds=ROUNDS,
    )
    (created,) = interleaved(lambda: _create_and_exec(home), rounds=5)
    return [
        ratio_row("`sbx exec NAME -- true`", ours, bare, "`python -c pass`"),
        ratio_row("`sbx create` and a first `exec`", created, ours, "an `exec`"),
        ("the same on a new home, which starts the local cloud", milliseconds(first_create_s), "once per home"),
    ]


def _create_and_exec(home: BenchHome) -> float:
    duration_s = home.sbx("create", "fresh").duration_s + home.sbx("exec", "fresh", "--", "true").duration_s
    home.sbx("rm", "fresh", "--yes")
    return duration_s


def _files(home: BenchHome) -> list[Row]:
    small, big, back = (str(home.folder / name) for name in ("small", "big", "back"))
    Path(small).write_bytes(b"x")
    with Path(big).open("wb") as file:
        for _ in range(FILE_BYTES // 10**6):
            file.write(os.urandom(10**6))
    base_bytes = home.sbx("cp", small, "bench:/work/small").peak_rss_bytes
    growth = {"put": 0, "get": 0}

    def put() -> float:
        ended = home.sbx("cp", big, "bench:/work/big")
        growth["put"] = max(growth["put"], ended.peak_rss_bytes - base_bytes)
        return ended.duration_s

    def get() -> float:
        ended = home.sbx("cp", "bench:/work/big", back)
        growth["get"] = max(growth["get"], ended.peak_rss_bytes - base_bytes)
        return ended.duration_s

    put_s, get_s, local_s = interleaved(put, get, lambda: run_child(["cp", big, back + "2"]).duration_s, rounds=3)
    if Path(back).read_bytes() != Path(big).read_bytes():
        raise RuntimeError("what came back from the sandbox is not what was put there")
    return [
        ratio_row("`sbx cp` 100 MB into a sandbox", put_s, local_s, "`cp` on this machine"),
        ratio_row("`sbx cp` 100 MB out of a sandbox", get_s, local_s, "`cp` on this machine"),
        (
            "memory that took, in and out",
            " and ".join(f"{growth[way] / 10**6:.1f} MB" for way in growth),
            "over `sbx cp` of one byte",
        ),
    ]


def _first_frame(home: BenchHome) -> list[Row]:
    bare_command = [sys.executable, "-c", _BARE_SCREEN]
    ours, bare = interleaved(
        lambda: _seconds_to_first_frame(SBX, home.env),
        lambda: _seconds_to_first_frame(bare_command, home.env),
        rounds=5,
    )
    return [ratio_row("first frame of the dashboard", ours, bare, "a textual app with one text")]


def _client_env(home: BenchHome) -> dict[str, str]:
    shell = f'lines=$({" ".join(SBX)} local env) && eval "$lines" && env -0'
    printed = run_child(["sh", "-c", shell], env=home.env).stdout.decode()
    return dict(entry.split("=", 1) for entry in printed.split("\0") if "=" in entry)


def _seconds_to_first_frame(command: Sequence[str], env: Mapping[str, str]) -> float:
    """From the start of the process until a screenful of readable characters came out of its terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    began = time.perf_counter()
    child = subprocess.Popen(
        command,
        env={**env, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        return _wait_for_characters(master, deadline=began + 30) - began
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        os.close(master)


def _wait_for_characters(terminal: int, *, deadline: float) -> float:
    seen = b""
    while (now := time.perf_counter()) < deadline:
        if not select.select([terminal], [], [], deadline - now)[0]:
            break
        seen += os.read(terminal, 65_536)
        if len(re.sub(rb"\s", b"", _ESCAPES.sub(b"", seen))) >= _FIRST_FRAME_CHARACTERS:
            return time.perf_counter()
    raise RuntimeError(f"no frame was drawn: {seen[-200:]!r}")
