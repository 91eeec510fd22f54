"""`sbx mcp config --write`: clients are told of the server, and what they had stays."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from tests.support.sbx import Sbx


def test_clients_are_told_of_the_server_and_what_was_in_their_files_stays(tmp_path: Path) -> None:
    sbx = Sbx(tmp_path)
    theirs = tmp_path / ".mcp.json"
    before = '{"mcpServers": {"other": {"command": "x"}}, "kept": 1}'
    theirs.write_text(before)
    sbx.ok("mcp", "config", "--client", "claude-code", "--scope", "project", "--write")
    written = json.loads(theirs.read_text())
    assert (written["kept"], written["mcpServers"]["other"]) == (1, {"command": "x"})
    server = written["mcpServers"]["sbx"]
    assert Path(server["command"]).is_absolute() and server["args"][-1] == "--mcp"
    assert server["env"]["SBX_HOME"] == str(tmp_path)
    assert (tmp_path / ".mcp.json.sbx-backup").read_text() == before

    codex = tmp_path / ".codex" / "config.toml"
    codex.parent.mkdir()
    codex.write_text("[existing]\na = 1\n")
    sbx.ok("mcp", "config", "--client", "codex", "--write")
    settings = tomllib.loads(codex.read_text())
    assert settings["existing"] == {"a": 1} and settings["mcp_servers"]["sbx"]["args"][-1] == "--mcp"


def test_a_file_that_cannot_be_understood_is_left_as_it_is(tmp_path: Path) -> None:
    sbx = Sbx(tmp_path)
    theirs = tmp_path / ".mcp.json"
    theirs.write_text("not json {")
    told = sbx("mcp", "config", "--client", "claude-code", "--scope", "project", "--write")
    assert (told.code, theirs.read_text()) == (2, "not json {")
    assert str(theirs) in told.err
    assert list(tmp_path.glob("*backup*")) == []
