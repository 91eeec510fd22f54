"""`sbx forward` and `sbx ports` as people and scripts use them, with a real sandbox."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from sbxtui.services.forward.model import facts_of
from sbxtui.settings import load
from sbxtui.wiring import Services
from tests.support.sbx import DEADLINE_S, Sbx

pytestmark = pytest.mark.long

# Answers each line with itself, whoever connects.
SERVER = """
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
Server(("127.0.0.1", 7000), Echo).serve_forever()
"""


@pytest.fixture(scope="module")
def served(sbx: Sbx, app: str) -> str:
    """A sandbox in which something listens on port 7000."""
    sbx.ok("exec", "--detach", app, "--", "python3", "-c", SERVER)
    until(lambda: [one["port"] for one in sbx.ok("ports", app, "--json").json] == [7000])
    return app


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.1)


@contextmanager
def live(sbx: Sbx, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """A forward in the foreground that listens already, and what it said first."""
    process = sbx.spawn("forward", *words, "--json")
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.communicate()[1].decode()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def echoes(port: int, host: str = "127.0.0.1") -> bool:
    with socket.create_connection((host, port), timeout=20) as client:
        client.sendall(b"hello\n")
        try:
            return client.makefile("rb").readline() == b"hello\n"
        except ConnectionResetError:
            return False


def listed(sbx: Sbx, name: str) -> dict[str, Any]:
    """The forward of a sandbox as others see it."""
    (one,) = [one for one in sbx.ok("forward", "ls", "--json").json if one["sandbox"] == name]
    return dict(one)


def seen(sbx: Sbx, name: str) -> dict[str, Any]:
    """The same, for who looks again and again: no process is started for it."""
    services = Services(load(sbx.environment(), cwd=sbx.home), actor="test")
    try:
        (one,) = [one for one in map(facts_of, services.links.list("forward")) if one["sandbox"] == name]
    finally:
        services.close()
    return one


def connected(told: dict[str, Any]) -> socket.socket:
    return socket.create_connection(("127.0.0.1", told["local_port"]), timeout=20)


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        return exc.code


def refuses(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def test_a_port_of_the_sandbox_is_here_until_ctrl_c(sbx: Sbx, served: str) -> None:
    with live(sbx, served, ":7000") as (process, told):
        port = told["local_port"]
        assert (told["remote_port"], told["url"]) == (7000, f"http://{served}-7000.localhost:{port}")
        assert echoes(port) and echoes(port, "::1")
        one = listed(sbx, served)
        assert (one["local_port"], one["running"], one["detached"]) == (port, True, False)
        until(lambda: seen(sbx, served).get("received_bytes") == 12)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    assert refuses(port)
    assert served not in sbx.ok("forward", "ls").out
    kinds = {json.loads(line)["kind"] for line in sbx.ok("events", "--json").stdout.splitlines()}
    assert {"forward.start", "forward.stop", "port.listening"} <= kinds


def test_what_begins_to_listen_is_told_and_is_one_event_though_nobody_uses_the_forwards(sbx: Sbx, served: str) -> None:
    with live(sbx, served, ":7000") as (process, _), live(sbx, served, ":7000"):
        job = sbx.ok("exec", "--detach", served, "--", "python3", "-c", SERVER.replace("7000", "7003")).out
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        said: list[dict[str, Any]] = []

        def is_told() -> bool:
            said.extend(json.loads(line) for line in (process.stdout or ()))
            return any(one["event"] == "port" and one["port"] == 7003 for one in said)

        until(is_told)
    events = [json.loads(line) for line in sbx.ok("events", served, "--json").stdout.splitlines()]
    begun = [one["data"] for one in events if one["kind"] == "port.listening" and one["data"]["port"] == 7003]
    assert [one["process"] for one in begun] == ["python3"]
    sbx.ok("kill", served, job, "--signal", "KILL")


def test_no_token_is_shown_whatever_is_asked_for(sbx: Sbx, served: str) -> None:
    with live(sbx, served, ":7000", "--debug") as (process, told):
        assert echoes(told["local_port"])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert b"authentication." not in out + err and b"Sec-WebSocket" not in out + err


def test_a_taken_port_ends_with_3_and_names_its_holder_or_another_is_found(sbx: Sbx, served: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = sbx("forward", served, ":7001", f"{port}:7000", "--json")
        assert (result.code, result.error["code"]) == (3, "address_in_use")
        assert f"pid {os.getpid()}" in result.error["message"]
        with live(sbx, served, f"{port}:7000", "--any-port") as (_, told):
            assert told["local_port"] > port
            assert echoes(told["local_port"])


@pytest.mark.parametrize("words", [["9000"], ["8080"], ["1:2:3"], ["0"], ["8000", "8000:1"], []])
def test_what_cannot_be_forwarded_is_a_mistake_of_the_line(sbx: Sbx, app: str, words: list[str]) -> None:
    assert sbx("forward", app, *words).code == 2


def test_a_detached_forward_survives_its_process_and_ends_when_told_to(sbx: Sbx, served: str) -> None:
    (told,) = sbx.ok("forward", served, ":7000", "--detach", "--json").json
    port = told["local_port"]
    assert echoes(port)
    assert (listed(sbx, served)["detached"], listed(sbx, served)["running"]) == (True, True)
    taken = sbx("forward", served, f"{port}:8000")
    assert (taken.code, f"the forward of port 7000 of `{served}`" in taken.err) == (3, True)
    assert f"`sbx forward stop {served} {port}`" in taken.err
    runner = json.loads((sbx.home / "state" / "runner.json").read_text())["identity"]
    os.kill(int(runner.partition(":")[0]), signal.SIGKILL)
    until(lambda: not refuses(port) and echoes(port))
    assert sbx.ok("forward", "stop", served, "--json").json == {"sandbox": served, "stopped": [port]}
    assert refuses(port)
    assert sbx("forward", "stop", served).code == 4


@pytest.mark.slow
def test_forwards_of_a_sandbox_share_a_tunnel_follow_its_name_and_end_with_it(sbx: Sbx) -> None:
    sbx.ok("create", "before", "--memory", "512")
    sbx.ok("exec", "--detach", "before", "--", "python3", "-c", SERVER)
    told = sbx.ok("forward", "before", ":7000", ":7000", "--detach", "--json").json
    ports = [one["local_port"] for one in told]
    sbx.ok("rename", "before", "after")
    for port in ports:
        until(partial(echoes, port))
    names = [one["sandbox"] for one in sbx.ok("forward", "ls", "--json").json]
    assert names.count("after") == 2 and "before" not in names
    log = (sbx.home / "logs" / "forwards.log").read_text()
    assert log.count("before: connecting") == 1
    sbx.ok("rm", "after", "--yes")
    assert "after" not in sbx.ok("forward", "ls").out
    for port in ports:
        until(partial(refuses, port))


def test_open_connections_go_on_after_a_stop_and_a_start(sbx: Sbx, served: str) -> None:
    with live(sbx, served, ":7000") as (_, told), connected(told) as client:
        lines = client.makefile("rb")
        client.sendall(b"one\n")
        assert lines.readline() == b"one\n"
        sbx.ok("stop", served)
        client.sendall(b"two\n")
        until(lambda: f"sbx start {served}" in str(seen(sbx, served).get("reason")))
        sbx.ok("start", served)
        assert lines.readline() == b"two\n"


def test_a_sandbox_that_went_to_sleep_is_woken_by_a_byte_and_by_nothing_else(sbx: Sbx) -> None:
    sbx.ok("create", "sleepy", "--memory", "512", "--idle", "600")
    sbx.ok("exec", "--detach", "sleepy", "--", "python3", "-c", SERVER)
    with live(sbx, "sleepy", ":7000") as (process, told), connected(told) as client:
        lines = client.makefile("rb")
        client.sendall(b"one\n")
        assert lines.readline() == b"one\n"
        sbx.ok("stop", "sleepy")
        with connected(told):
            until(lambda: seen(sbx, "sleepy")["state"] == "suspended")
        assert sbx.ok("ps", "sleepy", "--json").json["state"] == "SUSPENDED"
        client.sendall(b"two\n")
        assert lines.readline() == b"two\n"
        sbx.ok("rm", "sleepy", "--yes")
        said = process.communicate(timeout=60)[1]
        # Its end may be seen before its name is taken away.
        assert b"`sleepy` was removed" in said or b"`sleepy` was terminated" in said


def test_without_a_tunnel_pages_pass_through_the_endpoint_and_a_stopped_sandbox_is_named(sbx: Sbx, served: str) -> None:
    sbx.ok("exec", "--detach", served, "--", "python3", "-m", "http.server", "7004", "--bind", "127.0.0.1")
    with live(sbx, served, ":7004", "--mode", "proxy") as (_, told):
        url = f"http://localhost:{told['local_port']}/"
        until(lambda: status_of(url) == 200)
        until(lambda: (seen(sbx, served)["mode"], seen(sbx, served)["state"]) == ("proxy", "up"))
        sbx.ok("stop", served)
        assert status_of(url) == 503
        until(lambda: f"sbx start {served}" in str(seen(sbx, served).get("reason")))
        sbx.ok("start", served)
        assert status_of(url) == 200
    assert sbx("forward", served, "7004", "--mode", "udp").code == 2


def test_open_connections_survive_a_local_cloud_that_is_killed(sbx: Sbx, served: str) -> None:
    with live(sbx, served, ":7000") as (_, told), connected(told) as client:
        lines = client.makefile("rb")
        client.sendall(b"one\n")
        assert lines.readline() == b"one\n"
        os.kill(sbx.ok("local", "status", "--json").json["pid"], signal.SIGKILL)
        client.sendall(b"two\n")
        assert lines.readline() == b"two\n"


def test_a_foreign_page_is_refused_and_nothing_listening_is_told(sbx: Sbx, served: str) -> None:
    with live(sbx, served, ":7001") as (process, told):
        url = f"http://127.0.0.1:{told['local_port']}/"
        request = urllib.request.Request(url, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=20)
        assert refused.value.code == 421
        assert not echoes(told["local_port"])
        assert process.stdout is not None
        said: list[str] = []
        while not any("nothing listens on port 7001" in one for one in said):
            said.append(str(json.loads(process.stdout.readline()).get("message")))
        assert any("another host" in one for one in said)
