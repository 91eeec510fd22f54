"""The network of a real sandbox, as a person gives it and a program in it finds it."""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.sbx import Result, Sbx

pytestmark = pytest.mark.long

HOST = "host.sbx.internal"
# As a person's program: proxies from the environment, and what it was told when it is refused.
FETCH = """
import json, sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())
except urllib.error.HTTPError as exc:
    print(exc.code, json.load(exc)["error"]["code"])
"""
DIRECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
HOLD = """
import socket, sys
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT %b HTTP/1.0\\r\\n\\r\\n" % sys.argv[1].encode())
print(s.recv(99)[:12], flush=True)
s.recv(1)
"""


class _Hello(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = f"hello {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def serving() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hello)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetch(sbx: Sbx, name: str, url: str) -> Result:
    return sbx.ok("exec", name, "--", "python", "-c", FETCH, url)


def test_a_sandbox_reaches_what_it_was_made_with_and_nothing_else(sbx: Sbx) -> None:
    with serving() as port, serving() as other:
        sbx.ok("create", "made", "--memory", "512", "--network", f"allow={HOST}:{port}")
        assert fetch(sbx, "made", f"http://{HOST}:{port}/a").out == "hello /a"
        assert fetch(sbx, "made", f"http://{HOST}:{other}/a").out == "403 policy_denied"
        direct = sbx("exec", "made", "--", "python", "-c", DIRECT, str(port))
        assert b"ConnectionRefused" in direct.stderr
        # What knows no proxy is led by the hand.
        by_hand = f"printf 'GET /c HTTP/1.0\\r\\n\\r\\n' | sbx-connect {HOST} "
        assert sbx.ok("exec", "made", "--", "sh", "-c", f"{by_hand}{port}").out.endswith("hello /c")
        refused = sbx("exec", "made", "--", "sh", "-c", f"{by_hand}{other}")
        assert (refused.code, "403 sbx:" in refused.err) == (1, True)
        [row] = sbx.ok("ls", "--json", "--filter", "made").json
        assert row["network"] == f"allow={HOST}:{port}"
        sbx.ok("rm", "made", "--yes")


def test_a_network_changes_while_the_sandbox_runs_and_cuts_what_it_no_longer_allows(sbx: Sbx, app: str) -> None:
    with serving() as port:
        url = f"http://{HOST}:{port}/b"
        assert fetch(sbx, app, url).out == "403 policy_denied"
        shown = sbx.ok("network", app, "--allow", f"{HOST}:{port},pypi", "--json").json
        assert shown["network"] == f"allow={HOST}:{port},pypi"
        assert fetch(sbx, app, url).out == "hello /b"
        held = sbx.spawn("exec", app, "--", "python", "-c", HOLD, f"{HOST}:{port}")
        assert held.stdout is not None
        assert b"200" in held.stdout.readline()
        changed = sbx.ok("network", app, "--deny", f"{HOST}:{port}", "--json").json
        assert (changed["network"], changed["cut_connections"]) == ("allow=pypi", 1)
        held.communicate(timeout=60)
        assert fetch(sbx, app, url).out == "403 policy_denied"
        assert sbx.ok("network", app, "--none").out == "none"
        events = [event["kind"] for event in map(json.loads, sbx.ok("events", app, "--json").out.splitlines())]
        assert events.count("sandbox.network") == 3


def test_the_log_tells_what_was_asked_by_which_job_and_what_became_of_it(sbx: Sbx, app: str) -> None:
    fetch(sbx, app, "http://example.com:81/")
    entry = sbx.ok("network", app, "--log", "--tail", "1", "--json").json
    assert (entry["action"], entry["host"], entry["port"], entry["method"]) == ("refused", "example.com", 81, "GET")
    assert len(entry["job"]) > 8
    told = sbx.ok("network", app, "--log", "--tail", "2", "--json").out.splitlines()
    assert [json.loads(line)["seq"] for line in told][-1] == entry["seq"]
    follower = sbx.spawn("network", app, "--log", "--follow", "--tail", "1", "--json")
    assert follower.stdout is not None
    try:
        assert json.loads(follower.stdout.readline()) == entry
        fetch(sbx, app, "http://example.com:82/")
        followed = json.loads(follower.stdout.readline())
        assert (followed["action"], followed["port"]) == ("refused", 82)
    finally:
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=60)


def test_a_refusal_names_a_sandbox_that_was_renamed_so_that_no_other_is_meant(sbx: Sbx) -> None:
    sandbox_id = sbx.ok("create", "before", "--memory", "512", "--json").json["id"]
    sbx.ok("rename", "before", "after")
    read = (
        "import http.client as h; c = h.HTTPConnection('127.0.0.1', 3128); "
        "c.request('GET', '/'); print(c.getresponse().read().decode())"
    )
    told = sbx.ok("exec", "after", "--", "python", "-c", read).json
    assert (told["sandbox"], told["how_to_ask"]) == (sandbox_id, f"sbx network {sandbox_id} --allow HOST:PORT")
    assert sbx.ok("network", sandbox_id, "--allow", "example.com:80").out == "allow=example.com:80"
    sbx.ok("rm", "after", "--yes")


def test_a_killed_local_cloud_comes_back_with_every_policy(sbx: Sbx, app: str) -> None:
    with serving() as port:
        sbx.ok("network", app, "--allow", f"{HOST}:{port}")
        os.kill(sbx.ok("local", "status", "--json").json["pid"], signal.SIGKILL)
        assert sbx.ok("network", app).out == f"allow={HOST}:{port}"
        assert fetch(sbx, app, f"http://{HOST}:{port}/c").out == "hello /c"
        sbx.ok("network", app, "--none")


def test_nothing_is_left_of_a_sandbox_that_ended(sbx: Sbx) -> None:
    sbx.ok("create", "short", "--memory", "512", "--network", "internet")
    policies = sbx.home / "state" / "local" / "network"
    sandbox_id = sbx.ok("inspect", "short").json["id"]
    assert (policies / sandbox_id).read_text() == "internet"
    sbx.ok("rm", "short", "--yes", "--wait")
    # The way out follows the end of its sandbox within its next look.
    deadline = time.monotonic() + 20
    while list(policies.glob(f"*{sandbox_id}*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_change_that_cannot_be_changes_nothing(sbx: Sbx, app: str) -> None:
    before = sbx.ok("network", app).out
    for flags in (["--deny", "example.com:80"], ["--allow", "pypi,10.0.0.1:80"], ["--internet", "--none"]):
        assert sbx("network", app, *flags).code == 2
    assert sbx.ok("network", app).out == before


def test_presets_are_shown_with_their_hosts(sbx: Sbx, tmp_path: Path) -> None:
    presets = sbx.ok("network", "--presets", "--json").json
    assert {"pypi", "npm", "debian", "github"} <= set(presets)
    assert all(place.rpartition(":")[2] in ("80", "443") for places in presets.values() for place in places)
