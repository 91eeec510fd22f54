"""Servers people really run, reached through a forward by the clients people really use.

Their packages are fetched by CI (`.ci/run`), which names them in `SBX_TEST_SERVERS_PYTHON` and `SBX_TEST_SERVERS_NODE`,
or by the tests themselves into a folder of theirs, where `SBX_TEST_SERVERS_FETCH` is set, as `make soak` does. Programs
that only the system can bring (Chromium, PostgreSQL, OpenSSH) are used where they are. What is not there is skipped. CI
runs each through the tunnel and leaves out what takes minutes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from sbxtui.services.forward.model import Mode
from tests.guest.conftest import guest, warm_guest
from tests.localcloud.conftest import cloud, endpoint
from tests.localcloud.endpoint import Endpoint
from tests.support.browser import PROGRAM, Browser, Page, running_browser
from tests.support.forwarding import forwarded, proxied
from tests.support.guest_process import GuestProcess
from tests.support.relay import running_relay
from tests.support.servers import free_port, program

__all__ = ["cloud", "endpoint", "guest", "warm_guest"]
LIMIT_S = 120
MODES = (pytest.param(Mode.TUNNEL, marks=pytest.mark.long), pytest.param(Mode.PROXY, marks=pytest.mark.slow))
needs_chromium = pytest.mark.skipif(not PROGRAM, reason="Chromium is not installed")
POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), None)
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
PAGE = "<title>x</title><body><p id=p></p><script type=module src=/main.js></script>"
MAIN = """import { word } from "./word.js";
window.loads = (window.loads || 0) + 1;
document.querySelector("#p").textContent = word;
import.meta.hot.accept("./word.js", (made) => { document.querySelector("#p").textContent = made.word; });
"""
APP = """
import asyncio
from fastapi import FastAPI
from fastapi.responses import HTMLResponse, StreamingResponse
app = FastAPI()
waiting = asyncio.Queue()
@app.get("/", response_class=HTMLResponse)
async def page():
    return "<p id=p></p><script>new EventSource('/events').onmessage = e => { p.textContent += e.data; }</script>"
@app.get("/events")
async def events():
    async def stream():
        yield "data: one\\n\\n"
        while True:
            yield f"data: {await waiting.get()}\\n\\n"
    return StreamingResponse(stream(), media_type="text/event-stream")
@app.post("/say/{word}")
async def say(word: str):
    waiting.put_nowait(word)
    return {"said": word}
"""
LAYOUT = "export default ({ children }) => <html><body>{children}</body></html>;\n"
ACTION = """
import { revalidatePath } from "next/cache";
export const dynamic = "force-dynamic";
globalThis.count ??= 0;
async function more() {
  "use server";
  globalThis.count += 1;
  revalidatePath("/");
}
export default function Page() {
  return <form action={more}><p>{`count is ${globalThis.count}`}</p><button>more</button></form>;
}
"""
COUNTER = """
import streamlit as st
st.session_state.setdefault("n", 0)
if st.button("more"):
    st.session_state.n += 1
st.write(f"count is {st.session_state.n}")
"""


Reached = Callable[[int], AbstractAsyncContextManager[int]]


@pytest.fixture
def reached(mode: Mode, request: pytest.FixtureRequest) -> Reached:
    """Forwards a port and yields the one here. An endpoint is there for the mode that needs one."""
    way = request.getfixturevalue("guest" if mode is Mode.TUNNEL else "endpoint")

    @asynccontextmanager
    async def forwarding(port: int) -> AsyncIterator[int]:
        if isinstance(way, Endpoint):
            async with proxied(way.address, port, tokens=[way.token], verify=way.context()) as through:
                yield through.local_port
        else:
            async with forwarded(way.url, port) as forward:
                yield forward.local_port

    return forwarding


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all pages."""
    with running_browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the servers of PyPI."""
    if given := os.environ.get("SBX_TEST_SERVERS_PYTHON"):
        return Path(given)
    _fetch_only_if_told_to()
    folder = tmp_path_factory.mktemp("pypi")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    interpreter = folder / "bin" / "python"
    packages = ("fastapi", "uvicorn", "jupyter_server", "ipykernel", "streamlit")
    words = ("-m", "pip", "install", "-q", "--disable-pip-version-check", "--prefer-binary", *packages)
    done = subprocess.run([interpreter, *words], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"not to be had here: {done.stderr.decode()[-300:]}")
    return interpreter


def _fetch_only_if_told_to() -> None:
    if not os.environ.get("SBX_TEST_SERVERS_FETCH"):
        pytest.skip("not named in SBX_TEST_SERVERS_…, and not to be fetched")


@pytest.fixture(scope="module")
def vite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Vite in it, and a page that takes new code without being loaded anew."""
    folder = tmp_path_factory.mktemp("vite")
    (folder / "package.json").write_text('{"name": "x", "type": "module"}')
    _install_node(folder, "SBX_TEST_SERVERS_NODE", "vite@5")
    (folder / "index.html").write_text(PAGE)
    (folder / "main.js").write_text(MAIN)
    return folder


def _install_node(folder: Path, variable: str, *packages: str) -> None:
    if given := os.environ.get(variable):
        (folder / "node_modules").symlink_to(given)
        return
    _fetch_only_if_told_to()
    if subprocess.run(["npm", "install", "--silent", "--no-audit", *packages], cwd=folder, check=False).returncode:
        pytest.skip(f"{packages[0]} is not to be had here")


def _vite(folder: Path, port: int) -> tuple[str | Path, ...]:
    program_file = folder / "node_modules/vite/bin/vite.js"
    return ("node", program_file, "--port", str(port), "--strictPort", "--host", "127.0.0.1")


@needs_chromium
@pytest.mark.parametrize("mode", MODES)
async def test_vite_serves_its_page_and_puts_new_code_into_it(vite: Path, reached: Reached, browser: Browser) -> None:
    port = free_port()
    (vite / "word.js").write_text('export const word = "one";\n')
    command = _vite(vite, port)
    async with (
        asyncio.timeout(LIMIT_S),
        program(*command, cwd=vite, port=port),
        reached(port) as local_port,
        browser.page() as page,
    ):
        await page.go(f"http://app-{port}.localhost:{local_port}/")
        await page.until('document.querySelector("#p")?.textContent === "one"')
        await _put_new_code_in(page, vite, "two")
        assert await page.value("window.loads") == 1


async def _put_new_code_in(page: Page, folder: Path, word: str) -> None:
    """Save until the page has it: of what is saved before its socket is open, Vite tells it nothing."""
    for at in itertools.count():
        (folder / "word.js").write_text(f'export const word = "{word}"; // {at}\n')
        if await page.is_soon(f'document.querySelector("#p").textContent === "{word}"', within_s=2):
            return


@needs_chromium
@pytest.mark.slow
async def test_25_cuts_of_the_way_do_not_reload_a_page_of_vite(
    vite: Path, guest: GuestProcess, browser: Browser
) -> None:
    port = free_port()
    (vite / "word.js").write_text('export const word = "one";\n')
    command = _vite(vite, port)
    async with (
        asyncio.timeout(LIMIT_S),
        program(*command, cwd=vite, port=port),
        running_relay(guest.port) as relay,
        forwarded(relay.url, port) as forward,
        browser.page() as page,
    ):
        await page.go(f"http://localhost:{forward.local_port}/")
        await page.until('document.querySelector("#p")?.textContent === "one"')
        await _put_new_code_in(page, vite, "two")
        for at in range(25):
            relay.cut()
            (vite / "word.js").write_text(f'export const word = "cut {at}";\n')
            await page.until(f'document.querySelector("#p").textContent === "cut {at}"')
        assert await page.value("window.loads") == 1
        assert relay.cuts >= 25


@pytest.mark.parametrize("mode", MODES)
async def test_fastapi_sends_each_event_as_it_happens_to_a_client_and_to_a_page(
    python: Path, reached: Reached, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    port = free_port()
    (tmp_path / "app.py").write_text(APP)
    command = (python, "-m", "uvicorn", "app:app", "--port", str(port))
    async with (
        asyncio.timeout(LIMIT_S),
        program(*command, cwd=tmp_path, port=port),
        reached(port) as local_port,
    ):
        await _hears_events(f"http://localhost:{local_port}")
        if PROGRAM:
            await _page_shows_events(request.getfixturevalue("browser"), f"http://app-{port}.localhost:{local_port}")


async def _hears_events(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client, client.stream("GET", "/events") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "data: one"
        assert (await client.post("/say/two")).json() == {"said": "two"}
        assert [await anext(lines), await anext(lines)] == ["", "data: two"]


async def _page_shows_events(browser: Browser, url: str) -> None:
    async with browser.page() as page, httpx.AsyncClient(timeout=60) as client:
        await page.go(f"{url}/")
        await page.until("document.querySelector('#p')?.textContent === 'one'")
        await client.post(f"http://localhost:{url.rpartition(':')[2]}/say/three")
        await page.until("document.querySelector('#p').textContent === 'onethree'")


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("mode", tuple(Mode))
async def test_an_action_of_next_changes_its_page(reached: Reached, browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "package.json").write_text('{"name": "x"}')
    _install_node(tmp_path, "SBX_TEST_SERVERS_NEXT", "next@14", "react@18", "react-dom@18")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "layout.js").write_text(LAYOUT)
    (tmp_path / "app" / "page.js").write_text(ACTION)
    words = ("node", tmp_path / "node_modules/next/dist/bin/next", "dev", "-p", str(port), "-H", "127.0.0.1")
    async with (
        asyncio.timeout(LIMIT_S),
        program(*words, cwd=tmp_path, port=port, NEXT_TELEMETRY_DISABLED="1"),
        reached(port) as local_port,
        browser.page() as page,
    ):
        await page.go(f"http://localhost:{local_port}/")
        await page.until("document.querySelector('p')?.textContent === 'count is 0'")
        await page.value("document.querySelector('button').click()")
        await page.until("document.querySelector('p').textContent === 'count is 1'")


@pytest.mark.parametrize("mode", MODES)
async def test_a_jupyter_kernel_computes_and_its_terminal_answers(
    mode: Mode, python: Path, reached: Reached, tmp_path: Path
) -> None:
    port = free_port()
    words = ("-m", "jupyter_server", "--no-browser", f"--port={port}", "--ip=127.0.0.1", "--IdentityProvider.token=t")
    more = ("--allow-root", "--ServerApp.allow_remote_access=True") if mode is Mode.PROXY else ("--allow-root",)
    async with (
        asyncio.timeout(LIMIT_S),
        program(python, *words, *more, cwd=tmp_path, port=port, JUPYTER_RUNTIME_DIR=str(tmp_path)),
        reached(port) as local_port,
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
            # What was typed is echoed, and shells tell terminals more than what commands say.
            while "42\r\n" not in said:
                kind, *text = json.loads(await socket.recv())
                said += text[0] if kind == "stdout" else ""


def _execute(code: str) -> dict[str, object]:
    header = {"msg_id": "1", "username": "", "session": "s", "msg_type": "execute_request", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}


@needs_chromium
@pytest.mark.parametrize("mode", MODES)
async def test_a_streamlit_button_counts(python: Path, reached: Reached, browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "app.py").write_text(COUNTER)
    words = ("-m", "streamlit", "run", "app.py", "--server.port", str(port), "--server.address", "127.0.0.1")
    quiet = ("--server.headless", "true", "--browser.gatherUsageStats", "false", "--server.fileWatcherType", "none")
    async with (
        asyncio.timeout(LIMIT_S),
        program(python, *words, *quiet, cwd=tmp_path, port=port),
        reached(port) as local_port,
        browser.page() as page,
    ):
        await page.go(f"http://localhost:{local_port}/")
        await page.until("document.body.innerText.includes('count is 0')")
        button = "[...document.querySelectorAll('button')].find(b => b.innerText.includes('more'))"
        # It may be drawn after what stands below it.
        await page.until(f"{button} !== undefined")
        await page.value(f"{button}.click()")
        await page.until("document.body.innerText.includes('count is 1')")


@pytest.fixture
def folder_of_anybody() -> Iterator[tuple[Path, str]]:
    """A folder, and whose it is: a database refuses to run as root. Not below pytest's, which it shuts to others."""
    user = "" if os.geteuid() else "nobody"
    with tempfile.TemporaryDirectory(prefix="sbx-database-") as name:
        if user:
            os.chown(name, pwd.getpwnam(user).pw_uid, -1)
        yield Path(name), user


@pytest.mark.long
@pytest.mark.skipif(POSTGRES is None or not shutil.which("psql"), reason="PostgreSQL is not installed")
async def test_psql_asks_a_database(guest: GuestProcess, folder_of_anybody: tuple[Path, str]) -> None:
    assert POSTGRES is not None
    folder, user = folder_of_anybody
    port, data = free_port(), folder / "data"
    words = (str(POSTGRES / "initdb"), "-D", str(data), "-A", "trust", "-U", "me", "--no-sync", "--locale=C")
    made = await asyncio.create_subprocess_exec(
        *words, cwd=folder, stdout=asyncio.subprocess.DEVNULL, user=user or None
    )
    assert await made.wait() == 0
    server = (POSTGRES / "postgres", "-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1", "-F")
    async with (
        asyncio.timeout(LIMIT_S),
        program(*server, cwd=folder, port=port, user=user),
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
