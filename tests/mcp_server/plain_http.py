"""Serves the MCP server over HTTP without a token, for the official conformance suite, which sends none."""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn

from sbxtui.mcp_server.face import Face
from sbxtui.mcp_server.http import listening, url_of
from sbxtui.mcp_server.options import Options
from sbxtui.mcp_server.server import build_server
from sbxtui.settings import load

if __name__ == "__main__":
    home = Path(sys.argv[1])
    face = Face(load({"SBX_HOME": str(home)}, cwd=home), Options())
    listener = listening("127.0.0.1:0")
    sys.stdout.write(url_of(listener) + "\n")
    sys.stdout.flush()
    app = build_server(face).streamable_http_app(host="127.0.0.1")
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
