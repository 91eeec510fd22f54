"""Secrets as a person gives them and real programs in a real sandbox use them, and where they are never to be found."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.sbx import Sbx, sbx_home
from tests.support.tls_server import make_test_authority

pytestmark = pytest.mark.long

HOST = "host.sbx.internal"
FIRST, SECOND, THIRD = "first-canary-5d0b1c9e", "second-canary-77ad02fe", "third-canary-08b1ff64"
# Programs as people have them. Each fetches URL with the key of its environment.
PROGRAMS = {
    "curl": 'curl -sS --max-time 30 -H "Authorization: Bearer $API_TOKEN" $URL',
    "curl with a query": 'curl -sS --max-time 30 "$URL?key=$API_TOKEN"',
    "python3": 'python3 -c \'import os, ssl, urllib.request as u; print(u.urlopen(u.Request(os.environ["URL"], '
    'headers={"Authorization": "Bearer " + os.environ["API_TOKEN"]}), timeout=30).read())\'',
    "git": "GIT_TERMINAL_PROMPT=0 git ls-remote https://me:$API_TOKEN@$PLACE/repository || true",
}
# Node 20 asks no proxy by itself; its own TLS checks who answers all the same.
NODE = """
const http = require("http"), tls = require("tls"), place = process.env.PLACE;
const asked = {host: "127.0.0.1", port: 3128, method: "CONNECT", path: place, headers: {Host: place}};
http.request(asked).on("connect", (_, socket) => {
  const secure = tls.connect({socket, servername: place.split(":")[0]}, () => secure.write(
    `GET /node HTTP/1.1\\r\\nHost: ${place}\\r\\nAuthorization: Bearer ${process.env.API_TOKEN}\\r\\n\\r\\n`));
  secure.on("data", (data) => process.stdout.write(data));
}).end();
"""


@dataclass(slots=True)
class Server:
    """Keeps what it was sent, and sends it back."""

    port: int = 0
    got: list[str] = field(default_factory=list)

    def last(self) -> str:
        """The newest request, Basic credentials as they came."""
        return self.got[-1]


@contextmanager
def serving(context: ssl.SSLContext) -> Iterator[Server]:
    found = Server()

    class Echo(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found.got.append(f"{self.requestline}\n{self.headers}")
            content = found.last().encode()
            status = 401 if "/repository" in self.path and "Authorization" not in self.headers else 200
            self.send_response(status)
            self.send_header("WWW-Authenticate", "Basic realm=test")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True, slots=True)
class Scene:
    """A home whose local cloud trusts the test's servers: one a secret may go to, and another one."""

    sbx: Sbx
    server: Server
    other: Server

    @property
    def place(self) -> str:
        """Where the secret may go."""
        return f"{HOST}:{self.server.port}"

    def run(self, name: str, shell: str, server: Server | None = None) -> str:
        """A command in the sandbox, told where the server is; all it said."""
        place = f"{HOST}:{(server or self.server).port}"
        env = ("--env", f"URL=https://{place}/", "--env", f"PLACE={place}")
        done = self.sbx("exec", name, *env, "--", "sh", "-c", shell)
        return done.out + done.err


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("secrets")
    authority = make_test_authority(folder)
    context = authority.server_context(HOST)
    with (
        serving(context) as server,
        serving(context) as other,
        sbx_home(folder / "home", SSL_CERT_FILE=str(authority.ca_file), GIVEN=FIRST, AT_ONCE=THIRD) as sbx,
    ):
        places = f"allow={HOST}:{server.port},{HOST}:{other.port}"
        sbx.ok("create", "app", "--memory", "512", "--network", places)
        yield Scene(sbx, server, other)


def test_programs_use_a_secret_they_cannot_read(scene: Scene) -> None:
    sbx, server = scene.sbx, scene.server
    sbx.ok("secret", "set", "app", "API_TOKEN", "--host", scene.place, "--from-env", "GIVEN")
    placeholder = scene.run("app", "echo $API_TOKEN").strip()
    assert placeholder.startswith("sbx_secret_")
    there = {name: shell for name, shell in PROGRAMS.items() if shutil.which(name.split()[0])}
    assert "python3" in there
    for name, shell in there.items():
        server.got.clear()
        said = scene.run("app", shell)
        assert server.got, (name, said)
        sent = server.last()
        assert FIRST in sent or "Basic bWU6Zmlyc3QtY2FuYXJ5LTVkMGIxYzll" in sent, (name, sent)
        assert FIRST not in said and placeholder not in sent, (name, said, sent)
    said = scene.run("app", f"command -v node > /dev/null || exit 0; timeout 30 node -e '{NODE}'")
    assert not said or ("HTTP/1.1 200" in said and FIRST in server.last()), said
    # The other one is as trusted, and is spoken to end to end.
    scene.run("app", PROGRAMS["python3"], scene.other)
    assert placeholder in scene.other.last() and FIRST not in scene.other.last()


def test_a_secret_is_changed_survives_a_killed_local_cloud_and_is_taken_back_while_it_runs(scene: Scene) -> None:
    sbx, server = scene.sbx, scene.server
    before = sbx.ok("secret", "set", "app", "API_TOKEN", "--host", scene.place, stdin=f"{FIRST}\n".encode())
    placeholder = scene.run("app", "echo $API_TOKEN").strip()
    changed = sbx.ok("secret", "set", "app", "API_TOKEN", "--json", stdin=SECOND.encode()).json
    assert (changed["placeholder"], changed["hosts"], before.out) == (placeholder, [scene.place], "API_TOKEN")
    os.kill(sbx.ok("local", "status", "--json").json["pid"], signal.SIGKILL)
    scene.run("app", PROGRAMS["python3"])
    assert SECOND in server.last()
    [row] = sbx.ok("secret", "ls", "app", "--json").json
    assert row["key"] == "API_TOKEN"
    nowhere(scene, (FIRST, SECOND))
    sbx.ok("secret", "rm", "app", "API_TOKEN")
    assert scene.run("app", "echo ${API_TOKEN-none} ${SSL_CERT_FILE-none}").strip() == "none none"
    trusting = PROGRAMS["python3"].replace("timeout=30", "timeout=30, context=ssl._create_unverified_context()")
    scene.run("app", f"API_TOKEN={placeholder} {trusting}")
    assert placeholder in server.last() and SECOND not in server.last()
    assert sbx("secret", "rm", "app", "API_TOKEN").code == 4
    kinds = [json.loads(line) for line in sbx.ok("events", "app", "--json").out.splitlines()]
    assert [one["data"]["action"] for one in kinds if one["kind"] == "sandbox.secret"][-2:] == ["set", "rm"]


def nowhere(scene: Scene, values: tuple[str, ...]) -> None:
    """Neither in a file of the home, nor in what any process of it was started with, nor anywhere inside."""
    for file in scene.sbx.home.rglob("*"):
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            assert not any(value.encode() in content for value in values), file
    pid = scene.sbx.ok("local", "status", "--json").json["pid"]
    assert not any(value.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() for value in values)
    for words in (["events", "--json"], ["network", "app", "--log", "--json"], ["inspect", "app"], ["ls", "--json"]):
        said = scene.sbx.ok(*words).out
        assert not any(value in said for value in values), words
    inside = scene.run("app", "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'")
    assert "sbx_secret_" in inside and not any(value in inside for value in values)
    found = scene.run("app", f"grep -rlE '{'|'.join(values)}' /work /home /run /tmp /opt /etc 2>/dev/null || echo none")
    assert found.strip() == "none"


def test_what_cannot_be_is_refused_in_words_that_say_what_to_do(scene: Scene) -> None:
    sbx = scene.sbx
    sbx.ok("create", "shut", "--memory", "512")
    refused = {
        ("set", "app", "KEY"): (2, "needs a host"),
        ("set", "app", "PATH", "--host", "a.example"): (2, "something else"),
        ("set", "app", "KEY", "--host", "a.example", "--from-env", "NOBODY"): (2, "NOBODY"),
        ("set", "app", "KEY", "--host", "a.example"): (5, "may not reach a.example:443"),
        ("set", "shut", "OPENAI_API_KEY"): (5, "may not reach api.openai.com:443"),
    }
    for words, (code, told) in refused.items():
        done = sbx("secret", *words, stdin=b"value")
        assert (done.code, told in done.err) == (code, True), (words, done.err)
        assert b"value" not in done.stderr.replace(b"the value", b"")
    assert sbx("secret", "set", "app", "KEY", "--host", scene.place, stdin=b"a\r\nInjected: 1").code == 2
    sbx.ok("rm", "shut", "--yes")
    for words, told in {
        ("KEY@a.example", "no variable `KEY`"): "export KEY",
        ("GIVEN", "needs a host"): "--host",
        ("GIVEN=value", "takes no value"): "name KEY",
        ("GIVEN@a.example", "may not reach a.example:443"): "--network allow=a.example:443",
    }.items():
        done = sbx("create", "never", "--secret", words[0])
        assert (done.code != 0, words[1] in done.err, told in done.err) == (True, True, True), done.err
        assert FIRST not in done.err and "=value" not in done.err
    assert sbx("inspect", "never").code == 4


def test_a_secret_is_there_from_the_first_command_on_and_nothing_of_it_is_left_after_the_end(scene: Scene) -> None:
    sbx = scene.sbx
    sbx.ok("create", "short", "-m", "512", "--network", f"allow={scene.place}", "--secret", f"AT_ONCE@{scene.place}")
    said = scene.run("short", f"export API_TOKEN=$AT_ONCE; echo $AT_ONCE; {PROGRAMS['python3']}")
    assert said.startswith("sbx_secret_") and THIRD in scene.server.last() and THIRD not in said
    kept = b"".join(file.read_bytes() for file in (sbx.home / "state").glob("*.db*"))
    assert THIRD.encode() not in kept
    sandbox_id = sbx.ok("inspect", "short").json["id"]
    kept = sbx.home / "state" / "local" / "secrets" / sandbox_id
    assert kept.exists()
    sbx.ok("rm", "short", "--yes", "--wait")
    # The way out follows the end of its sandbox within its next look.
    deadline = time.monotonic() + 20
    while kept.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_whose_launch_is_killed_before_it_has_its_secrets_is_taken_back(scene: Scene) -> None:
    words = ["create", "cut", "-m", "512", "--network", f"allow={scene.place}", "--secret", f"GIVEN@{scene.place}"]
    point = [sys.executable, "-m", "tests.support.killed_at", "sbxtui.services.secrets:Secrets.set:before", "sbxtui"]
    killed = subprocess.run([*point, *words], env=scene.sbx.environment(), cwd=Path(__file__).parents[2], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert "cut" not in [one["name"] for one in scene.sbx.ok("ls", "--json").json]
    assert scene.sbx("inspect", "cut").code == 4
