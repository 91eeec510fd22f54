"""The server over HTTP: for this machine only, for those who know the token, and for no web page."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

from tests.support.mcp_process import INITIALIZE
from tests.support.sbx import Sbx

DEADLINE_S = 60


def post(url: str, document: object, **headers: str) -> tuple[int, str]:
    """Status and body of one request."""
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, json.dumps(document).encode(), sent)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read().decode()


def test_only_who_knows_the_token_is_served_and_no_page_of_another_site(bare: Sbx, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-this-test\n")
    flags = ("mcp", "serve", "--http", "127.0.0.1:0", "--token-file", str(tmp_path / "token"))
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    token = {"Authorization": "Bearer of-this-test"}
    with bare.spawn(*flags) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().decode().strip()
            assert post(url, hello)[0] == 401
            assert post(url, hello, Authorization="Bearer of-another")[0] == 401
            assert post(url, hello, **token, Host="evil.example")[0] in (403, 421)
            assert post(url, hello, **token, Origin="http://evil.example")[0] == 403
            status, body = post(url, hello, **token)
            assert status == 200 and '"name":"sbx"' in body
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 128 + signal.SIGTERM
    for address in ("0.0.0.0:0", "here", "192.0.2.1:80"):
        assert bare("mcp", "serve", "--http", address).code == 2
