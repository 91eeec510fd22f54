"""Serves the MCP server over HTTP for the official conformance suite: without a token, as it sends none."""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn

from sbxtui.mcp_server.face import Face
from sbxtui.mcp_server.http import listening, trimmed, url_of
from sbxtui.mcp_server.options import Options
from sbxtui.mcp_server.server import build_server
from sbxtui.settings import load
from tests.mcp_server.suite import lay_over

if __name__ == "__main__":
    home = Path(sys.argv[1])
    face = Face(load({"SBX_HOME": str(home)}, cwd=home), Options())
    listener = listening("127.0.0.1:0")
    sys.stdout.write(url_of(listener) + "\n")
    sys.stdout.flush()
    server = build_server(face)
    lay_over(server, sys.argv[2])
    app = trimmed(server.streamable_http_app(host="127.0.0.1"))
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
