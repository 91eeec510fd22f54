"""Servers people really run, reached through a forward by the clients people really use.

Their packages come from where this machine's packages come from, into a folder of the test; programs that only the
system can bring (Chromium, PostgreSQL, OpenSSH) are used where they are.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from sbxtui.services.forward.model import Mode
from tests.guest.conftest import guest, warm_guest
from tests.localcloud.conftest import cloud, endpoint
from tests.localcloud.endpoint import Endpoint
from tests.support.browser import PROGRAM, browser_page
from tests.support.forwarding import forwarded, proxied
from tests.support.guest_process import GuestProcess
from tests.support.relay import running_relay

__all__ = ["cloud", "endpoint", "guest", "warm_guest"]
LIMIT_S = 240
MODES = (Mode.TUNNEL, Mode.PROXY)
needs_chromium = pytest.mark.skipif(not PROGRAM, reason="Chromium is not installed")
POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), None)
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
PAGE = "<title>x</title><body><p id=p></p><script type=module src=/main.js></script>"
MAIN = """import { word } from "./word.js";
window.loads = (window.loads || 0) + 1;
document.querySelector("#p").textContent = word;
import.meta.hot.accept("./word.js", (made) => { document.querySelector("#p").textContent = made.word; });
"""
EVENTS = """
import asyncio
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
app = FastAPI()
go = asyncio.Event()
@app.get("/events")
async def events():
    async def stream():
        yield "data: one\\n\\n"
        await go.wait()
        yield "data: two\\n\\n"
    return StreamingResponse(stream(), media_type="text/event-stream")
@app.post("/go")
async def release():
    go.set()
    return {"went": True}
"""
COUNTER = """
import streamlit as st
st.session_state.setdefault("n", 0)
if st.button("more"):
    st.session_state.n += 1
st.write(f"count is {st.session_state.n}")
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@asynccontextmanager
async def program(*words: str | Path, cwd: Path, port: int, user: str = "", **env: str) -> AsyncIterator[None]:
    """A server that listens on a port of this machine's loopback, ended with what it started."""
    log = (cwd / "server.log").open("ab")
    process = await asyncio.create_subprocess_exec(
        *map(str, words),
        cwd=cwd,
        env={**os.environ, "HOME": str(cwd), **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        user=user or None,
    )
    try:
        while True:
            assert process.returncode is None, (cwd / "server.log").read_text()[-2000:]
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            writer.close()
            break
        yield
    finally:
        os.killpg(process.pid, 9)
        await process.wait()
        log.close()


@asynccontextmanager
async def reached(mode: Mode, port: int, guest: GuestProcess, endpoint: Endpoint) -> AsyncIterator[int]:
    """The port forwarded; yields the one here."""
    if mode is Mode.TUNNEL:
        async with forwarded(guest.url, port) as forward:
            yield forward.local_port
    else:
        async with proxied(endpoint.address, port, tokens=[endpoint.token], verify=endpoint.context()) as through:
            yield through.local_port


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the servers of PyPI."""
    return _installed(tmp_path_factory.mktemp("pypi"), "fastapi", "uvicorn", "jupyter_server", "ipykernel", "streamlit")


def _installed(folder: Path, *packages: str) -> Path:
    if given := os.environ.get("SBX_TEST_SERVERS_PYTHON"):
        return Path(given)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = subprocess.run([folder / "bin/pip", "install", "-q", *packages], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"not to be had here: {done.stderr.decode()[-300:]}")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def vite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Vite in it, and a page that takes new code without being loaded anew."""
    folder = tmp_path_factory.mktemp("vite")
    (folder / "package.json").write_text('{"name": "x", "type": "module"}')
    if given := os.environ.get("SBX_TEST_SERVERS_NODE"):
        (folder / "node_modules").symlink_to(given)
    elif subprocess.run(["npm", "install", "--silent", "--no-audit", "vite@5"], cwd=folder, check=False).returncode:
        pytest.skip("Vite is not to be had here")
    (folder / "index.html").write_text(PAGE)
    (folder / "main.js").write_text(MAIN)
    return folder


def _vite(folder: Path, port: int) -> tuple[str | Path, ...]:
    program_file = folder / "node_modules/vite/bin/vite.js"
    return ("node", program_file, "--port", str(port), "--strictPort", "--host", "127.0.0.1")


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_vite_serves_its_page_and_puts_new_code_into_it(
    mode: Mode, vite: Path, guest: GuestProcess, endpoint: Endpoint, tmp_path: Path
) -> None:
    port = free_port()
    (vite / "word.js").write_text('export const word = "one";\n')
    command = _vite(vite, port)
    async with (
        asyncio.timeout(LIMIT_S),
        program(*command, cwd=vite, port=port),
        reached(mode, port, guest, endpoint) as local_port,
        browser_page(tmp_path / "profile") as page,
    ):
        await page.go(f"http://app-{port}.localhost:{local_port}/")
        await page.until('document.querySelector("#p")?.textContent === "one"')
        (vite / "word.js").write_text('export const word = "two";\n')
        await page.until('document.querySelector("#p").textContent === "two"')
        assert await page.value("window.loads") == 1


@needs_chromium
@pytest.mark.slow
async def test_25_cuts_of_the_way_do_not_reload_a_page_of_vite(vite: Path, guest: GuestProcess, tmp_path: Path) -> None:
    port = free_port()
    (vite / "word.js").write_text('export const word = "one";\n')
    command = _vite(vite, port)
    async with (
        asyncio.timeout(LIMIT_S),
        program(*command, cwd=vite, port=port),
        running_relay(guest.port) as relay,
        forwarded(relay.url, port) as forward,
        browser_page(tmp_path / "profile") as page,
    ):
        await page.go(f"http://localhost:{forward.local_port}/")
        await page.until('document.querySelector("#p")?.textContent === "one"')
        for at in range(25):
            relay.cut()
            (vite / "word.js").write_text(f'export const word = "cut {at}";\n')
            await page.until(f'document.querySelector("#p").textContent === "cut {at}"')
        assert await page.value("window.loads") == 1
        assert relay.cuts >= 25


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_fastapi_sends_each_event_as_it_happens(
    mode: Mode, python: Path, guest: GuestProcess, endpoint: Endpoint, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "app.py").write_text(EVENTS)
    async with (
        asyncio.timeout(LIMIT_S),
        program(python, "-m", "uvicorn", "app:app", "--port", str(port), cwd=tmp_path, port=port),
        reached(mode, port, guest, endpoint) as local_port,
        httpx.AsyncClient(base_url=f"http://localhost:{local_port}", timeout=60) as client,
        client.stream("GET", "/events") as answer,
    ):
        lines = answer.aiter_lines()
        assert await anext(lines) == "data: one"
        assert (await client.post("/go")).json() == {"went": True}
        assert [await anext(lines), await anext(lines)] == ["", "data: two"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_a_jupyter_kernel_computes_and_its_terminal_answers(
    mode: Mode, python: Path, guest: GuestProcess, endpoint: Endpoint, tmp_path: Path
) -> None:
    port = free_port()
    words = ("-m", "jupyter_server", "--no-browser", f"--port={port}", "--ip=127.0.0.1", "--IdentityProvider.token=t")
    more = ("--allow-root", "--ServerApp.allow_remote_access=True") if mode is Mode.PROXY else ("--allow-root",)
    async with (
        asyncio.timeout(LIMIT_S),
        program(python, *words, *more, cwd=tmp_path, port=port, JUPYTER_RUNTIME_DIR=str(tmp_path)),
        reached(mode, port, guest, endpoint) as local_port,
        httpx.AsyncClient(base_url=f"http://localhost:{local_port}", params={"token": "t"}, timeout=60) as client,
    ):
        origin = f"http://localhost:{local_port}"
        kernel = (await client.post("/api/kernels")).json()["id"]
        url = f"ws://localhost:{local_port}/api/kernels/{kernel}/channels?token=t"
        async with connect(url, origin=origin, max_size=None) as socket:  # type: ignore[arg-type]
            await socket.send(json.dumps(_execute("print(6 * 7)")))
            while True:
                told = json.loads(await socket.recv())
                if told["msg_type"] == "stream":
                    assert told["content"]["text"] == "42\n"
                    break
        terminal = (await client.post("/api/terminals")).json()["name"]
        url = f"ws://localhost:{local_port}/terminals/websocket/{terminal}?token=t"
        async with connect(url, origin=origin, max_size=None) as socket:  # type: ignore[arg-type]
            await socket.send(json.dumps(["stdin", "echo $((6*7))\r"]))
            said = ""
            while "\n42\r\n" not in said:
                kind, *text = json.loads(await socket.recv())
                said += text[0] if kind == "stdout" else ""


def _execute(code: str) -> dict[str, object]:
    header = {"msg_id": "1", "username": "", "session": "s", "msg_type": "execute_request", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_a_streamlit_button_counts(
    mode: Mode, python: Path, guest: GuestProcess, endpoint: Endpoint, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "app.py").write_text(COUNTER)
    words = ("-m", "streamlit", "run", "app.py", "--server.port", str(port), "--server.address", "127.0.0.1")
    quiet = ("--server.headless", "true", "--browser.gatherUsageStats", "false", "--server.fileWatcherType", "none")
    async with (
        asyncio.timeout(LIMIT_S),
        program(python, *words, *quiet, cwd=tmp_path, port=port),
        reached(mode, port, guest, endpoint) as local_port,
        browser_page(tmp_path / "profile") as page,
    ):
        await page.go(f"http://localhost:{local_port}/")
        await page.until("document.body.innerText.includes('count is 0')")
        await page.value("[...document.querySelectorAll('button')].find(b => b.innerText.includes('more')).click()")
        await page.until("document.body.innerText.includes('count is 1')")


@pytest.mark.slow
@pytest.mark.skipif(POSTGRES is None or not shutil.which("psql"), reason="PostgreSQL is not installed")
async def test_psql_asks_a_database(guest: GuestProcess, tmp_path: Path) -> None:
    assert POSTGRES is not None
    # It refuses to run as root.
    user = "" if os.geteuid() else "nobody"
    port, data = free_port(), tmp_path / "data"
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if user and folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o711)
    if user:
        os.chown(tmp_path, pwd.getpwnam(user).pw_uid, -1)
    words = (str(POSTGRES / "initdb"), "-D", str(data), "-A", "trust", "-U", "me")
    made = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL, user=user or None)
    assert await made.wait() == 0
    server = (POSTGRES / "postgres", "-D", data, "-p", str(port), "-k", tmp_path, "-h", "127.0.0.1")
    async with (
        asyncio.timeout(LIMIT_S),
        program(*server, cwd=tmp_path, port=port, user=user),
        forwarded(guest.url, port) as forward,
    ):
        sql = "select sum(n), length(string_agg(n::text, '')) from generate_series(1, 100000) n"
        asked = ["psql", "-h", "localhost", "-p", str(forward.local_port), "-U", "me", "-d", "postgres", "-Atc", sql]
        assert await _said(asked) == b"5000050000|488895\n"


@pytest.mark.long
@pytest.mark.skipif(SSHD is None or os.geteuid() != 0, reason="needs OpenSSH's server, and root")
async def test_ssh_runs_a_command_and_carries_its_bytes(guest: GuestProcess, tmp_path: Path) -> None:
    assert SSHD is not None
    port = free_port()
    for name in ("host", "me"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    keys = [f"HostKey={tmp_path / 'host'}", f"AuthorizedKeysFile={tmp_path / 'me.pub'}"]
    settings = [*keys, "StrictModes=no", "UsePAM=no"]
    Path("/run/sshd").mkdir(exist_ok=True)
    server = (SSHD, "-D", "-e", "-f", "/dev/null", "-p", str(port), *(word for one in settings for word in ("-o", one)))
    async with (
        asyncio.timeout(LIMIT_S),
        program(*server, "-o", "ListenAddress=127.0.0.1", cwd=tmp_path, port=port),
        forwarded(guest.url, port) as forward,
    ):
        options = ["StrictHostKeyChecking=no", f"UserKnownHostsFile={tmp_path / 'known'}", "BatchMode=yes"]
        asked = ["ssh", "-F", "/dev/null", "-i", str(tmp_path / "me"), "-p", str(forward.local_port), "root@localhost"]
        asked[1:1] = [word for one in options for word in ("-o", one)]
        data = os.urandom(3_000_000)
        assert await _said([*asked, "cat"], data) == data


async def _said(words: Sequence[str], given: bytes = b"") -> bytes:
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate(given)
    assert process.returncode == 0, err.decode()
    return out
